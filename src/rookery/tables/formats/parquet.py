"""Parquet files with a log of versions that defines which files form the table.

A reader that takes all files of the folder (a glob) also reads staged, replaced and abandoned
files. Use `read`, or the files of `snapshot`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import pyarrow as pa

from rookery.clock import SystemClock, Time
from rookery.errors import Conflict
from rookery.tables import batchorder, copyonwrite, filerewrite, latest, manifest, parquetfiles
from rookery.tables.copyonwrite import Swap
from rookery.tables.folder import TableFolder
from rookery.tables.manifest import TableVersion, Version
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
from rookery.tables.schemas import merge_schemas

_ATTEMPTS: Final = 50


def open(spec: TableSpec) -> Table:  # noqa: A001 (a format's interface)
    """Return the table in a folder."""
    return ParquetTable(spec)


class ParquetTable:
    """A folder of files with a log."""

    def __init__(self, spec: TableSpec) -> None:
        self._folder = TableFolder(spec.location)
        self._name = spec.name or self._folder.name

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
        """Add staged files in one new version of the table."""

        def change(version: Version, columns: pa.Schema) -> Swap:
            if upsert is None:
                return Swap([], list(files))
            live = list(version.files.values())
            return copyonwrite.upsert_rows(self._folder, live, files, columns, upsert, run)

        return self._commit(name, latest.table_schema(schema, upsert), change)

    def replace(
        self,
        name: BatchName,
        files: Sequence[DataFile],
        schema: pa.Schema,
        run: Run = here,  # noqa: ARG002 (nothing is rewritten)
    ) -> bool:
        """Replace the whole contents of the table with these files."""
        return self._commit(
            name, schema, lambda version, _: Swap(list(version.files.values()), list(files))
        )

    def last_commit(self, pipeline: str) -> BatchName | None:
        """Return the last batch of a pipeline."""
        return _last(manifest.current(self._folder), pipeline)

    def check(self, schema: pa.Schema) -> None:
        """Check that these columns fit the table's."""
        merge_schemas(self._name, self.schema(), schema)
        parquetfiles.check(self._name, schema)

    def schema(self) -> pa.Schema | None:
        """Return the newest version's columns."""
        return manifest.current(self._folder).arrow_schema()

    def rename(self, columns: Mapping[str, str]) -> None:
        """Rename columns in all files."""
        written: dict[str, list[DataFile]] = {}
        for _ in range(_ATTEMPTS):
            version = manifest.current(self._folder)
            schema = version.arrow_schema() or pa.schema([])
            swap = filerewrite.rename_columns(
                self._folder, version.files.values(), schema, columns, written
            )
            changed = filerewrite.rename_schema(schema, columns).serialize().to_pybytes().hex()
            try:
                manifest.append(self._folder, version, _entry(version, swap, changed, {}))
                return
            except Conflict:
                continue
        raise Conflict(f"table {self._name!r}: others commit all the time; try again")

    def snapshot(self) -> TableSnapshot | None:
        """Return the newest version."""
        version = manifest.current(self._folder)
        schema = version.arrow_schema()
        if schema is None:
            return None
        read = partial(parquetfiles.rows_of, self._folder, schema=schema)
        return TableSnapshot(schema, list(version.files.values()), read)

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the newest version."""
        snapshot = self.snapshot()
        return snapshot.read(snapshot.files) if snapshot else iter(())

    def read_staged(self, files: Sequence[DataFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of staged files."""
        return parquetfiles.rows_of(self._folder, files, schema)

    def upkeep(self, policy: UpkeepPolicy, now: Time) -> UpkeepResult:
        """Compact, expire old versions, and delete their files."""
        done = UpkeepResult()
        version = manifest.current(self._folder)
        for group in filerewrite.compactions(list(version.files.values()), policy):
            schema = version.arrow_schema() or pa.schema([])
            rows = parquetfiles.rows_of(self._folder, group, schema)
            swap = filerewrite.compact_files(self._folder, group, rows, schema)
            version = self._swap(swap)
            done.files_compacted += len(swap.removed)
            done.files_written += len(swap.added)
        self._expire(version, policy, now, done)
        return done

    def _commit(
        self,
        name: BatchName,
        schema: pa.Schema,
        change: Callable[[Version, pa.Schema], Swap],
    ) -> bool:
        for _ in range(_ATTEMPTS):
            version = manifest.current(self._folder)
            if not batchorder.is_new(self._name, _last(version, name.pipeline), name):
                return False
            columns = merge_schemas(self._name, version.arrow_schema(), schema)
            swap = change(version, columns)
            commits = {name.pipeline: batchorder.format_batch(name)}
            try:
                manifest.append(
                    self._folder,
                    version,
                    _entry(version, swap, _changed(version, columns), commits),
                )
                return True
            except Conflict:
                continue  # Another writer was first. Load again: it may have committed this batch.
        raise Conflict(f"table {self._name!r}: others commit all the time; try again")

    def _swap(self, swap: Swap) -> Version:
        for _ in range(_ATTEMPTS):
            version = manifest.current(self._folder)
            entry = _entry(version, swap, "", {})
            if all(file.path in version.files for file in swap.removed):
                try:
                    return manifest.append(self._folder, version, entry)
                except Conflict:
                    continue
            return version  # Another writer replaced a file; the new files are orphans.
        raise Conflict(f"table {self._name!r}: others commit all the time; try again")

    def _expire(
        self, version: Version, policy: UpkeepPolicy, now: Time, done: UpkeepResult
    ) -> None:
        until = now - policy.keep_ms
        entries = manifest.entry_times(self._folder, version)
        old = [number for number, at in entries[: -max(policy.keep_versions, 1)] if at < until]
        gone = [path for path, at in version.dropped.items() if at < until] if old else []
        for path in gone:
            done.bytes_deleted += self._folder.size(path) or 0
            self._folder.delete(path)
        done.files_deleted += len(gone)
        if old:
            done.versions_expired = manifest.forget(self._folder, version, gone, old[-1])
        known = version.files.keys() | version.dropped.keys()
        parquetfiles.sweep(self._folder, known, policy, now, done)


def _last(version: Version, pipeline: str) -> BatchName | None:
    text = version.commits.get(pipeline)
    return batchorder.read(pipeline, text) if text else None


def _changed(version: Version, columns: pa.Schema) -> str:
    return "" if columns == version.arrow_schema() else columns.serialize().to_pybytes().hex()


def _entry(version: Version, swap: Swap, schema: str, commits: dict[str, str]) -> TableVersion:
    removed = [file.path for file in swap.removed]
    at = SystemClock().now_ms()
    return TableVersion(version.version + 1, at, swap.added, removed, schema, commits)
