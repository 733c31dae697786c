"""Delta tables through deltalake: commits files and the batch's name in one transaction.

Delta stores a number per application. A pipeline has two: its query (a number in hex) and its last
batch, set in the commit that adds the files. deltalake would also accept a lower number. So the
rule is checked here, and its own retries are disabled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import Schema
from deltalake.transaction import AddAction, RemoveAction

from rookery.clock import SystemClock, Time
from rookery.errors import ConfigError, Conflict, Unavailable
from rookery.store.address import parse
from rookery.tables import batchorder, copyonwrite, filerewrite, latest, parquetfiles
from rookery.tables.copyonwrite import Swap
from rookery.tables.folder import TableFolder
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
from rookery.tables.reservednames import DELTA, check_names
from rookery.tables.schemas import check_kept, merge_schemas

_ATTEMPTS: Final = 20
_HOUR_MS: Final = 3600 * 1000
_QUERY_DIGITS: Final = 15


def open(spec: TableSpec) -> Table:  # noqa: A001 (a format's interface)
    """Return the table at a location."""
    return DeltaFormat(spec)


class DeltaFormat:
    """A table at its location."""

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
        """Add staged files in one transaction."""

        def change(table: DeltaTable, columns: pa.Schema) -> Swap:
            if upsert is None:
                return Swap([], list(files))
            return copyonwrite.upsert_rows(self._folder, _live(table), files, columns, upsert, run)

        return self._commit(name, latest.table_schema(schema, upsert), change)

    def replace(
        self,
        name: BatchName,
        files: Sequence[DataFile],
        schema: pa.Schema,
        run: Run = here,  # noqa: ARG002 (nothing is rewritten)
    ) -> bool:
        """Replace the whole contents of the table with these files."""
        return self._commit(name, schema, lambda table, _: Swap(_live(table), list(files)))

    def last_commit(self, pipeline: str) -> BatchName | None:
        """Return the last batch of a pipeline."""
        table = self._load()
        return None if table is None else _last(table, pipeline)

    def check(self, schema: pa.Schema) -> None:
        """Check that these columns fit the table's, also after conversion to Delta's types."""
        parquetfiles.check(self._name, schema)
        old = self.schema()
        check_names(self._name, "Delta", DELTA, old.names if old else (), schema.names)
        columns = (
            merge_schemas(self._name, None, schema) if old is None else self._grow(old, schema)
        )
        check_kept(self._name, self._convert_columns(columns), columns)

    def schema(self) -> pa.Schema | None:
        """Return the table's columns."""
        table = self._load()
        return None if table is None else self._columns(table)

    def rename(self, columns: Mapping[str, str]) -> None:
        """Rename columns in all files; few readers support Delta's column mapping."""
        written: dict[str, list[DataFile]] = {}
        for _ in range(_ATTEMPTS):
            table = self._open_existing()
            schema = self._columns(table)
            swap = filerewrite.rename_columns(self._folder, _live(table), schema, columns, written)
            try:
                _write(
                    table, Swap([], swap.added), filerewrite.rename_schema(schema, columns), [],
                    mode="overwrite",
                )  # fmt: skip
                return
            except CommitFailedError:
                continue
        raise Conflict(f"table {self._name!r}: others commit all the time; try again")

    def snapshot(self) -> TableSnapshot | None:
        """Return the newest version."""
        table = self._load()
        if table is None:
            return None
        schema = self._columns(table)
        read = partial(parquetfiles.rows_of, self._folder, schema=schema)
        return TableSnapshot(schema, _live(table), read)

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the newest version."""
        snapshot = self.snapshot()
        return snapshot.read(snapshot.files) if snapshot else iter(())

    def read_staged(self, files: Sequence[DataFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of staged files."""
        return parquetfiles.rows_of(self._folder, files, schema)

    def upkeep(self, policy: UpkeepPolicy, now: Time) -> UpkeepResult:
        """Compact, and delete the files that no retained version references."""
        done, table = UpkeepResult(), self._load()
        if table is None:
            return done
        for group in filerewrite.compactions(_live(table), policy):
            rows = parquetfiles.rows_of(self._folder, group, self._columns(table))
            swap = filerewrite.compact_files(self._folder, group, rows, self._columns(table))
            if self._swap(swap):
                done.files_compacted += len(swap.removed)
                done.files_written += len(swap.added)
        table = self._open_existing()
        gone = table.vacuum(
            retention_hours=-(-policy.keep_ms // _HOUR_MS),
            dry_run=False,
            enforce_retention_duration=False,
        )
        done.files_deleted += len(gone)
        parquetfiles.sweep(self._folder, _list_known(table), policy, now, done)
        table.create_checkpoint()
        table.cleanup_metadata()
        return done

    def _storage(self) -> dict[str, str] | None:
        if self._folder.path is not None:
            return None
        options = dict(parse(self._folder.url).options)
        if options.get("endpoint", "").startswith("http:"):
            options["allow_http"] = "true"
        return options

    def _load(self) -> DeltaTable | None:
        try:
            return self._open_existing()
        except TableNotFoundError:
            return None

    def _open_existing(self) -> DeltaTable:
        try:
            table = DeltaTable(self._folder.name, storage_options=self._storage())
        except TableNotFoundError:
            raise
        except (DeltaError, OSError) as error:
            raise Unavailable(f"table {self._name!r}: {error}") from error
        if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
            raise ConfigError(
                f"table {self._name!r}: its columns are mapped to other names in files"
                " (delta.columnMapping.mode), which is not supported here. Drop the feature:"
                " ALTER TABLE ... DROP FEATURE columnMapping"
            )
        return table

    def _create(self, schema: pa.Schema) -> DeltaTable:
        return DeltaTable.create(
            self._folder.name, schema, mode="ignore", storage_options=self._storage()
        )

    def _columns(self, table: DeltaTable) -> pa.Schema:
        return merge_schemas(self._name, None, pa.schema(table.schema().to_arrow()))  # type: ignore[arg-type] # by capsule

    def _commit(
        self,
        name: BatchName,
        schema: pa.Schema,
        change: Callable[[DeltaTable, pa.Schema], Swap],
    ) -> bool:
        query = _query_number(name)
        for _ in range(_ATTEMPTS):
            table = self._load() or self._create(merge_schemas(self._name, None, schema))
            if not batchorder.is_new(self._name, _last(table, name.pipeline), name):
                return False
            try:
                columns = self._evolve(table, schema)
                transactions = [
                    Transaction(_batch_key(name.pipeline), name.batch),
                    Transaction(_query_key(name.pipeline), query),
                ]
                _write(table, change(table, columns), columns, transactions)
                return True
            except CommitFailedError:
                continue  # The next load of the table shows whether the commit succeeded.
        raise Conflict(f"table {self._name!r}: others commit all the time; try again")

    def _swap(self, swap: Swap) -> bool:
        for _ in range(_ATTEMPTS):
            table = self._open_existing()
            live = {file.path for file in _live(table)}
            if not live.issuperset(file.path for file in swap.removed):
                return False  # Another writer has replaced a file of the group.
            try:
                _write(table, swap, self._columns(table), [], data_change=False)
                return True
            except CommitFailedError:
                continue
        raise Conflict(f"table {self._name!r}: others commit all the time; try again")

    def _evolve(self, table: DeltaTable, schema: pa.Schema) -> pa.Schema:
        old = self._columns(table)
        columns = self._grow(old, schema)
        if new := [field for field in columns if field.name not in old.names]:
            table.alter.add_columns(Schema.from_arrow(pa.schema(new)).fields)
            table.update_incremental()
        return columns

    def _convert_columns(self, columns: pa.Schema) -> pa.Schema:
        """Return columns as a new table would return them."""
        try:
            stored = Schema.from_arrow(columns).to_arrow()
        except Exception as error:  # deltalake raises no more specific error
            why = str(error).partition("\n")[0]
            raise ConfigError(f"table {self._name!r}: Delta cannot keep it: {why}") from error
        return merge_schemas(self._name, None, pa.schema(stored))  # type: ignore[arg-type] # by capsule

    def _grow(self, old: pa.Schema, schema: pa.Schema) -> pa.Schema:
        columns = merge_schemas(self._name, old, schema)
        for field in old:
            if columns.field(field.name).type != field.type:
                raise ConfigError(
                    f"table {self._name!r}: column {field.name!r} is {field.type} and would become"
                    f" {columns.field(field.name).type}; a Delta table can add columns, not widen"
                    " them. Declare the type that the table has, or give the column another name,"
                    " or the table another location"
                )
        return columns


def _write(
    table: DeltaTable,
    swap: Swap,
    columns: pa.Schema,
    transactions: list[Transaction],
    *,
    data_change: bool = True,
    mode: str = "append",
) -> None:
    now = SystemClock().now_ms()
    actions: list[AddAction | RemoveAction] = [
        AddAction(
            file.path, file.bytes, {}, now, data_change, json.dumps({"numRecords": file.rows})
        )
        for file in swap.added
    ]
    actions += [RemoveAction(file.path, data_change, now, file.bytes, {}) for file in swap.removed]
    properties = CommitProperties(max_commit_retries=0, app_transactions=transactions or None)
    table.create_write_transaction(actions, mode, columns, commit_properties=properties)


def _live(table: DeltaTable) -> list[DataFile]:
    """Return the files of the table.

    Raises:
        ConfigError: some of their rows may be deleted, and deltalake does not report which.
    """
    if "deletionVectors" in (table.protocol().reader_features or ()):
        raise ConfigError(
            f"table {table.table_uri}: it has deletion vectors, which cannot be read here: batches"
            " can be added, but no rows replaced, read for gold or compacted. Drop the feature:"
            " ALTER TABLE ... DROP FEATURE deletionVectors"
        )
    actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    # Other writers can omit the number of rows.
    return [
        DataFile(action["path"], action["num_records"] or 0, action["size_bytes"])
        for action in actions
    ]


def _list_known(table: DeltaTable) -> set[str]:
    """Return the files of the table, and removed ones that are still readable."""
    removed = table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False)
    return {*(file.path for file in _live(table)), *removed}


def _last(table: DeltaTable, pipeline: str) -> BatchName | None:
    batch = table.transaction_version(_batch_key(pipeline))
    query = table.transaction_version(_query_key(pipeline))
    return None if batch is None or query is None else BatchName(pipeline, f"{query:x}", batch)


def _query_number(name: BatchName) -> int:
    if not 0 < len(name.query) <= _QUERY_DIGITS or name.query.startswith("0"):
        raise ConfigError(f"query {name.query!r}: for Delta a number in hex of at most 15 digits")
    return int(name.query, 16)


def _batch_key(pipeline: str) -> str:
    return f"rookery:{pipeline}:batch"


def _query_key(pipeline: str) -> str:
    return f"rookery:{pipeline}:query"
