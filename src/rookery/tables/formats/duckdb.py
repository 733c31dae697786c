"""A table in a DuckDB file on this host: one transaction stores rows and the batch's name.

Staged files are stored in `FILE.staged` and deleted after their rows are in the database. DuckDB
allows only one process to write. A reader that holds the file open blocks a commit for up to a
minute.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from time import sleep
from typing import Final

import duckdb
import pyarrow as pa

from rookery.clock import SystemClock, Time
from rookery.errors import ConfigError, Unavailable
from rookery.store.open import store_traits
from rookery.tables import batchorder, copyonwrite, latest, parquetfiles
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
from rookery.tables.schemas import check_kept, merge_schemas

_COMMITS: Final = "_rookery_commits"
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_PATIENCE_MS: Final = 60_000
_PAUSE_SECONDS: Final = 0.1


def open(spec: TableSpec) -> Table:  # noqa: A001 (a format's interface)
    """Return a table of a database file."""
    return DuckTable(spec)


class DuckTable:
    """A table of a database file."""

    def __init__(self, spec: TableSpec) -> None:
        path = store_traits(spec.location).path
        if path is None:
            raise ConfigError(f"table {spec.location!r}: DuckDB needs a file of this host")
        self._path = path
        self._staged = path.with_name(f"{path.name}.staged")
        self._folder = TableFolder(str(self._staged))
        self._name = spec.name or self._path.stem
        if _WORD.fullmatch(self._name) is None:
            raise ConfigError(f"table {self._name!r}: letters, digits and _ only, for DuckDB")

    def stage(
        self, name: BatchName, batches: Iterable[pa.RecordBatch], schema: pa.Schema, attempt: str
    ) -> list[DataFile]:
        """Write rows to files next to the database."""
        return parquetfiles.stage(self._folder, batches, schema, f"{name.batch}-{attempt}")

    def commit(
        self,
        name: BatchName,
        files: Sequence[DataFile],
        schema: pa.Schema,
        upsert: Upsert | None = None,
        run: Run = here,
    ) -> bool:
        """Insert the rows of staged files in one transaction, and delete the files."""

        def change(database: duckdb.DuckDBPyConnection, columns: pa.Schema) -> None:
            if upsert is None:
                self._insert(database, files)
            else:
                self._upsert(database, files, columns, upsert, run)

        return self._commit(name, files, latest.table_schema(schema, upsert), change)

    def replace(
        self,
        name: BatchName,
        files: Sequence[DataFile],
        schema: pa.Schema,
        run: Run = here,  # noqa: ARG002 (nothing is rewritten)
    ) -> bool:
        """Replace the whole contents of the table with the rows of these files."""

        def change(database: duckdb.DuckDBPyConnection, _: pa.Schema) -> None:
            database.execute(f"DELETE FROM {self._name}")  # noqa: S608 (the name is a word)
            self._insert(database, files)

        return self._commit(name, files, schema, change)

    def last_commit(self, pipeline: str) -> BatchName | None:
        """Return the last batch of a pipeline."""
        if not self._path.exists():
            return None
        with self._open() as database:
            return self._last(database, pipeline)

    def check(self, schema: pa.Schema) -> None:
        """Check that these columns fit the table's, also after conversion to DuckDB's types."""
        parquetfiles.check(self._name, schema)
        old = self.schema()
        with duckdb.connect() as database:
            if old is not None:
                self._evolve(database, old)
            try:
                self._evolve(database, schema)
            except duckdb.Error as error:
                raise ConfigError(f"table {self._name!r}: its columns: {error}") from error
            check_kept(self._name, self._columns(database) or schema, schema)

    def schema(self) -> pa.Schema | None:
        """Return the table's columns."""
        if not self._path.exists():
            return None
        with self._open() as database:
            return self._columns(database)

    def rename(self, columns: Mapping[str, str]) -> None:
        """Rename columns in one transaction."""
        with self._open() as database:
            database.begin()
            try:
                for old, new in columns.items():
                    database.execute(
                        f"ALTER TABLE {self._name} RENAME COLUMN {_quote(old)} TO {_quote(new)}"
                    )
                database.commit()
            except duckdb.Error as error:
                raise ConfigError(
                    f"table {self._name!r}: its columns cannot be renamed: {error}"
                ) from error

    def snapshot(self) -> TableSnapshot | None:
        """Return None: the rows are in the database, not in files."""
        return None

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows."""
        if self.schema() is None:
            return
        with self._open() as database:
            yield from database.sql(f"FROM {self._name}").to_arrow_reader()

    def read_staged(self, files: Sequence[DataFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of staged files."""
        return parquetfiles.rows_of(self._folder, files, schema)

    def upkeep(self, policy: UpkeepPolicy, now: Time) -> UpkeepResult:
        """Checkpoint the database, and delete abandoned staged files."""
        done = UpkeepResult()
        if self._path.exists():
            # If another process is committing now, the next upkeep does it.
            with self._open() as database, suppress(duckdb.TransactionException):
                database.execute("CHECKPOINT")
        parquetfiles.sweep(self._folder, (), policy, now, done)
        return done

    def _commit(
        self,
        name: BatchName,
        files: Sequence[DataFile],
        schema: pa.Schema,
        change: Callable[[duckdb.DuckDBPyConnection, pa.Schema], None],
    ) -> bool:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._open() as database:
            database.begin()
            database.execute(
                f"CREATE TABLE IF NOT EXISTS {_COMMITS}"
                " (sink VARCHAR, pipeline VARCHAR, batch VARCHAR, PRIMARY KEY (sink, pipeline))"
            )
            is_new = batchorder.is_new(self._name, self._last(database, name.pipeline), name)
            if is_new:
                change(database, self._evolve(database, schema))
                database.execute(
                    f"INSERT OR REPLACE INTO {_COMMITS} VALUES (?, ?, ?)",  # noqa: S608
                    [self._name, name.pipeline, batchorder.format_batch(name)],
                )
            database.commit()
        for file in files:
            self._folder.delete(file.path)
        return is_new

    def _last(self, database: duckdb.DuckDBPyConnection, pipeline: str) -> BatchName | None:
        if not _exists(database, _COMMITS):
            return None
        rows = database.execute(
            f"SELECT batch FROM {_COMMITS} WHERE sink = ? AND pipeline = ?",  # noqa: S608
            [self._name, pipeline],
        ).fetchall()
        return batchorder.read(pipeline, rows[0][0]) if rows else None

    def _columns(self, database: duckdb.DuckDBPyConnection) -> pa.Schema | None:
        if not _exists(database, self._name):
            return None
        empty = database.sql(f"FROM {self._name} LIMIT 0").to_arrow_table()
        return merge_schemas(self._name, None, empty.schema)

    def _evolve(self, database: duckdb.DuckDBPyConnection, schema: pa.Schema) -> pa.Schema:
        old = self._columns(database)
        columns = merge_schemas(self._name, old, schema)
        database.register("_wanted", columns.empty_table())
        if old is None:
            database.execute(f"CREATE TABLE {self._name} AS FROM _wanted")
            return columns
        types = {row[0]: row[1] for row in database.execute("DESCRIBE _wanted").fetchall()}
        for field in columns:
            column = _quote(field.name)
            if field.name not in old.names:
                database.execute(
                    f"ALTER TABLE {self._name} ADD COLUMN {column} {types[field.name]}"
                )
            elif old.field(field.name).type != field.type:
                database.execute(
                    f"ALTER TABLE {self._name} ALTER {column} TYPE {types[field.name]}"
                )
        return columns

    def _insert(self, database: duckdb.DuckDBPyConnection, files: Sequence[DataFile]) -> None:
        paths = [str(self._staged / file.path) for file in files]
        if paths:
            database.execute(
                f"INSERT INTO {self._name} BY NAME"  # noqa: S608
                " SELECT * FROM read_parquet(?, union_by_name = true)",
                [paths],
            )

    def _upsert(
        self,
        database: duckdb.DuckDBPyConnection,
        files: Sequence[DataFile],
        columns: pa.Schema,
        upsert: Upsert,
        run: Run,
    ) -> None:
        same = " AND ".join(f"t.{_quote(key)} = c.{_quote(key)}" for key in upsert.keys)
        delete = f"DELETE FROM {self._name} t USING _changes c WHERE {same}"  # noqa: S608
        for last in copyonwrite.last_changes(self._folder, files, columns, upsert, run):
            database.register("_changes", last)
            database.execute(delete)
            database.register("_kept", latest.select_remaining(last, columns, upsert))
            database.execute(f"INSERT INTO {self._name} BY NAME FROM _kept")

    @contextmanager
    def _open(self) -> Iterator[duckdb.DuckDBPyConnection]:
        database = self._connect()
        try:
            database.execute("SET TimeZone = 'UTC'")
            yield database
        finally:
            database.close()

    def _connect(self) -> duckdb.DuckDBPyConnection:
        clock = SystemClock()
        deadline = clock.monotonic_ms() + _PATIENCE_MS
        while True:
            try:
                return duckdb.connect(self._path)
            except duckdb.IOException as error:
                if clock.monotonic_ms() > deadline:
                    raise Unavailable(f"{self._path}: {error}") from error
                sleep(_PAUSE_SECONDS)  # Another process is using the file.


def _exists(database: duckdb.DuckDBPyConnection, name: str) -> bool:
    tables = database.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = ?", [name])
    return bool(tables.fetchall())


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
