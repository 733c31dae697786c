"""Data files of an Iceberg table from any writer, and their rows.

Rookery's files have no column ids and are read with the table's name mapping. Files of other
engines have ids. Other engines can also mark rows as deleted in separate files (merge-on-read).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import FileScanTask, StaticTable, Table
from pyiceberg.typedef import Record

from rookery.clock import SystemRandom
from rookery.errors import ConfigError
from rookery.tables import copyonwrite, parquetfiles
from rookery.tables.copyonwrite import Swap
from rookery.tables.folder import TableFolder
from rookery.tables.port import DataFile, Run, Upsert
from rookery.tables.schemas import merge_schemas, set_names


@dataclass(frozen=True, slots=True)
class IcebergFiles:
    """The files of a table, with paths relative to its folder."""

    folder: TableFolder
    table: Table
    """The table as loaded; later commits are not visible."""

    def live(self) -> list[DataFile]:
        """Return the files of the current snapshot."""
        return list(map(self.own, self.entries()))

    def entries(self) -> list[IcebergFile]:
        """Return the same files as manifest entries."""
        return [
            entry.data_file
            for manifest in self._manifests()
            if manifest.content == ManifestContent.DATA
            for entry in manifest.fetch_manifest_entry(self.table.io, discard_deleted=True)
        ]

    def by_partition(self) -> list[list[DataFile]]:
        """Return the files grouped by partition."""
        parts: dict[tuple[int, Record], list[DataFile]] = {}
        for file in self.entries():
            parts.setdefault((file.spec_id, file.partition), []).append(self.own(file))
        return list(parts.values())

    def own(self, file: IcebergFile) -> DataFile:
        """Convert a manifest entry to a `DataFile`."""
        path = self.folder.path_of(file.file_path)
        return DataFile(path, file.record_count, file.file_size_in_bytes)

    def rows(self, files: Sequence[DataFile]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of files, except those marked as deleted."""
        columns, foreign = columns_of(self.table), self._foreign(files)
        schema = self.readable(columns)
        for file in files:
            if file.path in foreign:
                yield from self._read_unmarked(file, foreign[file.path], schema)
            else:
                yield from parquetfiles.rows(self.folder, file, schema)

    def readable(self, columns: pa.Schema) -> pa.Schema:
        """Return columns that can be resolved in files of any age and any writer."""
        mapping = self.table.metadata.name_mapping()
        names = {field.field_id: field.names for field in mapping.root} if mapping else {}
        ids = {field.name: field.field_id for field in self.table.schema().fields}
        return pa.schema(
            [
                set_names(field, ids[field.name], names.get(ids[field.name], ()))
                if field.name in ids
                else field
                for field in columns
            ]
        )

    def marks(self, files: Sequence[DataFile]) -> dict[str, set[str]]:
        """Return for each file the delete files that apply to it."""
        return {
            path: {file.file_path for file in task.delete_files}
            for path, task in self._foreign(files).items()
        }

    def upsert(
        self, changes: Sequence[DataFile], columns: pa.Schema, upsert: Upsert, run: Run
    ) -> Swap:
        """Rewrite the files that changes touch.

        A row that is marked as deleted must not reappear in a rewritten file. So files with such
        rows are first copied without them, and the copies are changed.
        """
        live = {file.path: file for file in self.live()}
        foreign = self._foreign(list(live.values()))
        copies = {path: self._copy(live[path]) for path in foreign}
        read = [copy for path, file in live.items() for copy in copies.get(path, [file])]
        schema = self.readable(columns)
        swap = copyonwrite.upsert_rows(self.folder, read, changes, schema, upsert, run)
        touched = {file.path for file in swap.removed}
        removed = [file for path, file in live.items() if path in touched]
        for path, parts in copies.items():
            left = [part for part in parts if part.path not in touched]
            if len(left) < len(parts):
                removed.append(live[path])
                swap.added.extend(left)
        return Swap(removed, swap.added)

    def _read_unmarked(
        self, file: DataFile, task: FileScanTask, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file that are not marked as deleted.

        pyiceberg's own reader cannot be used, because it returns null lists of structs as empty
        lists.
        """
        # Private in pyiceberg; only tables with delete files depend on it.
        from pyiceberg.io.pyarrow import _read_deletes  # noqa: PLC0415

        address, io = task.file.file_path, self.table.io
        marks = [_read_deletes(io, delete_file).get(address) for delete_file in task.delete_files]
        places = [place for mark in marks if mark is not None for place in mark.chunks]
        deleted = pa.chunked_array(places, pa.int64())
        with io.new_input(address).open() as source:
            data = source.read()
        begin = 0
        for batch in parquetfiles.decode_rows(self.folder, file, data, schema):
            end = begin + batch.num_rows
            yield batch.filter(pc.invert(pc.is_in(pa.array(range(begin, end)), deleted)))
            begin = end

    def _copy(self, file: DataFile) -> list[DataFile]:
        attempt = f"copied-{SystemRandom().token(8).hex()}"
        rows = self.rows([file])
        return parquetfiles.stage(self.folder, rows, columns_of(self.table), attempt)

    def _foreign(self, files: Sequence[DataFile]) -> dict[str, FileScanTask]:
        """Return the files that only Iceberg's own reader can read.

        Other engines have marked rows in them as deleted, or their names are invalid in Rookery's
        stores.
        """
        wanted = {file.path for file in files}
        has_marks = any(manifest.content != ManifestContent.DATA for manifest in self._manifests())
        if not has_marks and all(map(self.folder.is_path, wanted)):
            return {}
        try:
            tasks = list(self.table.scan().plan_files())
        except (NotImplementedError, ValueError) as error:
            raise ConfigError(
                f"table {self.table.name()[-1]!r}: another engine has deleted rows in a way that"
                f" cannot be read here: {error}. Compact the table with that engine, or let it"
                " write deletes as copy-on-write"
            ) from error
        tasks_by_path = {self.folder.path_of(task.file.file_path): task for task in tasks}
        return {
            path: task
            for path, task in tasks_by_path.items()
            if path in wanted and (task.delete_files or not self.folder.is_path(path))
        }

    def _manifests(self) -> list[ManifestFile]:
        snapshot = self.table.current_snapshot()
        return snapshot.manifests(self.table.io) if snapshot else []


def columns_of(table: Table) -> pa.Schema:
    """Return a table's columns."""
    kept = schema_to_pyarrow(table.schema(), include_field_ids=False)
    return merge_schemas(table.name()[-1], None, kept)


def detach_table(table: Table) -> Table:
    """Return a loaded table without its catalog, so that it can be sent to other hosts."""
    return StaticTable(
        table.name(), table.metadata, table.metadata_location, table.io, NoopCatalog("detached")
    )
