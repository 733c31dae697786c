"""Iceberg tables through pyiceberg, in a SQL catalog unless another is named.

A batch's name is a property of the table, set in the transaction that adds its files. Snapshots and
their summaries expire, properties do not. pyiceberg's own retries are disabled for these
transactions, because they do not check whether the batch has been committed meanwhile.

Options:
    catalog: a SQL catalog's URI (default: `sqlite` in a file next to the table), or the name of
        one that pyiceberg's own configuration knows, as `name:NAME`.
    namespace: where in the catalog (default `default`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Final

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.io.pyarrow import (
    UnsupportedPyArrowTypeException,
    _pyarrow_to_schema_without_ids,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.table import Table as IcebergHandle
from pyiceberg.table import TableProperties, Transaction
from sqlalchemy.exc import OperationalError

from rookery.clock import Time
from rookery.errors import ConfigError, Conflict
from rookery.tables import batchorder, filerewrite, icebergexpiry, latest, parquetfiles
from rookery.tables.copyonwrite import Swap
from rookery.tables.folder import TableFolder
from rookery.tables.icebergcatalog import CatalogEntry, restore_retries
from rookery.tables.icebergfiles import IcebergFiles, columns_of, detach_table
from rookery.tables.icebergparts import FilePartitioner, PartitionFile, data_file
from rookery.tables.icebergtransaction import OneLook
from rookery.tables.port import (
    BatchName,
    DataFile,
    Run,
    Table,
    TableSnapshot,
    TableSpec,
    UpkeepPolicy,
    UpkeepResult,
    Upsert,
    here,
)
from rookery.tables.reservednames import ICEBERG, check_names
from rookery.tables.schemas import check_kept, merge_schemas

_ATTEMPTS: Final = 20
_FOOTERS_AT_ONCE: Final = 8
_COMMIT: Final = "rookery.commit."
# SQLite raises the last one if other processes write for a long time.
_AGAIN: Final = (CommitFailedException, CommitStateUnknownException, OperationalError)


def open(spec: TableSpec) -> Table:  # noqa: A001 (a format's interface)
    """Return the table of a catalog."""
    return IcebergTable(spec)


class IcebergTable:
    """A table in a catalog, whose files are stored at its location."""

    def __init__(self, spec: TableSpec) -> None:
        self._folder = TableFolder(spec.location)
        self._entry = CatalogEntry(spec, self._folder)
        self._name = self._entry.name

    def stage(
        self, name: BatchName, batches: Iterable[pa.RecordBatch], schema: pa.Schema, attempt: str
    ) -> list[DataFile]:
        """Write rows to files that are not part of the table yet."""
        return parquetfiles.stage(self._folder, batches, schema, f"{name.batch}-{attempt}")

    def commit(
        self,
        name: BatchName,
        files: Sequence[DataFile],
        schema: pa.Schema,
        upsert: Upsert | None = None,
        run: Run = here,
    ) -> bool:
        """Add staged files in one snapshot."""

        def change(table: IcebergHandle, columns: pa.Schema) -> Swap:
            if upsert is None:
                return Swap([], list(files))
            return self._files(table).upsert(files, columns, upsert, run)

        return self._commit(name, latest.table_schema(schema, upsert), change, run)

    def replace(
        self,
        name: BatchName,
        files: Sequence[DataFile],
        schema: pa.Schema,
        run: Run = here,
    ) -> bool:
        """Replace the whole contents of the table with these files."""
        return self._commit(
            name, schema, lambda table, _: Swap(self._files(table).live(), list(files)), run
        )

    def last_commit(self, pipeline: str) -> BatchName | None:
        """Return the last batch of a pipeline."""
        table = self._entry.load()
        return None if table is None else _last(table, pipeline)

    def check(self, schema: pa.Schema) -> None:
        """Check that these columns fit the table's, also after conversion to Iceberg's types."""
        parquetfiles.check(self._name, schema)
        old = self.schema()
        check_names(self._name, "Iceberg", ICEBERG, old.names if old else (), schema.names)
        columns = merge_schemas(self._name, old, schema)
        check_kept(self._name, _convert_columns(self._name, columns), schema)

    def schema(self) -> pa.Schema | None:
        """Return the table's columns."""
        table = self._entry.load()
        return None if table is None else columns_of(table)

    def rename(self, columns: Mapping[str, str]) -> None:
        """Rename columns; they keep their ids, by which files are read."""
        table = self._entry.load()
        if table is None:
            return
        try:
            with table.transaction() as transaction:
                _keep_names(transaction)
                with transaction.update_schema() as update:
                    for old, new in columns.items():
                        update.rename_column(old, new)
        except _AGAIN as error:
            raise Conflict(f"table {self._name!r}: another writer was faster; try again") from error

    def snapshot(self) -> TableSnapshot | None:
        """Return the newest snapshot; it can be read without the catalog."""
        table = self._entry.load()
        if table is None:
            return None
        there = self._files(detach_table(table))
        return TableSnapshot(columns_of(table), there.live(), there.rows)

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the newest snapshot."""
        snapshot = self.snapshot()
        return snapshot.read(snapshot.files) if snapshot else iter(())

    def read_staged(self, files: Sequence[DataFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of staged files."""
        return parquetfiles.rows_of(self._folder, files, schema)

    def upkeep(self, policy: UpkeepPolicy, now: Time) -> UpkeepResult:
        """Compact, expire snapshots, and delete the files that only they reference."""
        done, table = UpkeepResult(), self._entry.load()
        if table is None:
            return done
        there = self._files(table)
        groups = (filerewrite.compactions(files, policy) for files in there.by_partition())
        for group in chain.from_iterable(groups):
            swap = filerewrite.compact_files(
                self._folder, group, there.rows(group), columns_of(table)
            )
            if self._swap(swap, there.marks(group)):
                done.files_compacted += len(swap.removed)
                done.files_written += len(swap.added)
        table.refresh()
        needed = icebergexpiry.expire(table, policy, now, done)
        known = set(map(self._folder.path_of, needed))
        parquetfiles.sweep(self._folder, known, policy, now, done)
        return done

    def _commit(
        self,
        name: BatchName,
        schema: pa.Schema,
        change: Callable[[IcebergHandle, pa.Schema], Swap],
        run: Run,
    ) -> bool:
        partitioner = FilePartitioner(self._folder, run)
        for _ in range(_ATTEMPTS):
            table = self._entry.load() or self._entry.create(
                merge_schemas(self._name, None, schema)
            )
            if not batchorder.is_new(self._name, _last(table, name.pipeline), name):
                return False
            columns = merge_schemas(self._name, columns_of(table), schema)
            try:
                self._evolve(table, columns)
                self._commit_once(table, change(table, columns), name, partitioner)
                return True
            except _AGAIN:
                continue  # The next load of the table shows whether the commit succeeded.
        raise Conflict(f"table {self._name!r}: others commit all the time; try again")

    def _commit_once(
        self, table: IcebergHandle, swap: Swap, name: BatchName, partitioner: FilePartitioner
    ) -> None:
        with _quiet():
            transaction = OneLook(table)
            _keep_names(transaction)
            restore_retries(transaction, table)
            transaction.set_properties({_COMMIT + name.pipeline: batchorder.format_batch(name)})
            if swap.removed:
                self._overwrite(table, transaction, swap, partitioner)
            elif swap.added:
                files = self._describe(table, transaction, swap.added, partitioner)
                with transaction.update_snapshot().merge_append() as snapshot:
                    for file in files:
                        snapshot.append_data_file(file)
            transaction.commit_transaction()

    def _overwrite(
        self,
        table: IcebergHandle,
        transaction: Transaction,
        swap: Swap,
        partitioner: FilePartitioner,
    ) -> None:
        removed = {file.path for file in swap.removed}
        files = self._describe(table, transaction, swap.added, partitioner)
        with transaction.update_snapshot().overwrite() as snapshot:
            for old in self._files(table).entries():
                if self._folder.path_of(old.file_path) in removed:
                    snapshot.delete_data_file(old)
            for file in files:
                snapshot.append_data_file(file)

    def _describe(
        self,
        table: IcebergHandle,
        transaction: Transaction,
        files: Sequence[DataFile],
        partitioner: FilePartitioner,
    ) -> list[IcebergFile]:
        """Return manifest entries for files, which are split if the table is partitioned."""
        metadata = transaction.table_metadata
        if metadata.spec().is_unpartitioned():
            parts = [PartitionFile(file, ()) for file in files]
        else:
            columns = self._files(table).readable(columns_of(table))
            parts = partitioner.parts(metadata, columns, files)

        def describe(part: PartitionFile) -> IcebergFile:
            return data_file(table.io, metadata, self._folder.address(part.file.path), part)

        with ThreadPoolExecutor(_FOOTERS_AT_ONCE, "rookery-footers") as pool:
            return list(pool.map(describe, parts))

    def _swap(self, swap: Swap, marks: dict[str, set[str]]) -> bool:
        partitioner = FilePartitioner(self._folder, here)
        for _ in range(_ATTEMPTS):
            table = self._entry.reload()
            there = self._files(table)
            live = {file.path for file in there.live()}
            is_there = live.issuperset(file.path for file in swap.removed)
            if not is_there or there.marks(swap.removed) != marks:
                return False  # Another writer has replaced a file, or deleted rows of it.
            try:
                with _quiet():
                    transaction = OneLook(table)
                    self._overwrite(table, transaction, swap, partitioner)
                    transaction.commit_transaction()
                return True
            except _AGAIN:
                continue
        raise Conflict(f"table {self._name!r}: others commit all the time; try again")

    def _evolve(self, table: IcebergHandle, columns: pa.Schema) -> None:
        if columns == columns_of(table):
            return
        with table.transaction() as transaction:
            _keep_names(transaction)
            with transaction.update_schema() as update:
                update.union_by_name(columns)

    def _files(self, table: IcebergHandle) -> IcebergFiles:
        return IcebergFiles(self._folder, table)


def _last(table: IcebergHandle, pipeline: str) -> BatchName | None:
    text = table.properties.get(_COMMIT + pipeline)
    return batchorder.read(pipeline, text) if text else None


def _keep_names(transaction: Transaction) -> None:
    """Ensure that the table has a name mapping: Rookery's files have no ids and are read by name.

    A schema change extends the mapping. So a renamed column is still found under its name in older
    files.
    """
    metadata = transaction.table_metadata
    if metadata.name_mapping() is None:
        mapping = metadata.schema().name_mapping.model_dump_json()
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})


def _convert_columns(name: str, columns: pa.Schema) -> pa.Schema:
    """Return columns as a new table would return them."""
    try:
        stored = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(columns))
        return merge_schemas(name, None, schema_to_pyarrow(stored, include_field_ids=False))
    except (UnsupportedPyArrowTypeException, TypeError, ValueError) as error:
        raise ConfigError(f"table {name!r}: Iceberg cannot keep its columns: {error}") from error


def _quiet() -> warnings.catch_warnings[None]:
    """Suppress pyiceberg's warnings about intended behaviour."""
    return warnings.catch_warnings(action="ignore")
