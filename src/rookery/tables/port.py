"""The port of a table: the contract that every format implements.

Many processes stage files, and one `commit` adds their rows to the table. A commit has the batch's
name. The table stores the last name of every pipeline in the transaction that adds the files. So
any process can retry a commit at any later time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa

from rookery.clock import Time
from rookery.model.location import Location, hide_options

MIB: Final = 1 << 20


class TableTask(Protocol):
    """A unit of work that can be pickled; so can its result."""

    @property
    def bytes(self) -> int:
        """The approximate number of bytes that it reads."""

    def __call__(self) -> Any:
        """Run the task."""


Run = Callable[[Sequence[TableTask]], list[Any]]
"""Runs tasks in any place and order, and returns their results in the order of the tasks."""


def here(tasks: Sequence[TableTask]) -> list[Any]:
    """Run tasks sequentially in this process."""
    return [task() for task in tasks]


@dataclass(frozen=True, slots=True)
class BatchName:
    """Identifies a batch by pipeline, query and number."""

    pipeline: str
    query: str
    """Generated when the pipeline first ran; a different one means that its progress was lost."""
    batch: int

    def __str__(self) -> str:
        return f"batch {self.batch} of pipeline {self.pipeline!r} (query {self.query})"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file with rows; its path is relative to the table's location."""

    path: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A table at one point in time.

    It can be sent to other hosts, which read its files without the table's catalog.
    """

    schema: pa.Schema
    files: Sequence[DataFile]
    read: Callable[[Sequence[DataFile]], Iterator[pa.RecordBatch]]
    """Yields the rows of the given files, with all columns."""


@dataclass(frozen=True, slots=True)
class Upsert:
    """Specifies that a batch's rows replace rows with the same key."""

    keys: tuple[str, ...]
    order: tuple[str, ...] = ()
    """Columns that order the rows of a key; if none, their order in the files."""
    deleted: str = ""
    """A column that is true in rows that only delete; it is not stored in the table."""
    bucket_bytes: int = 32 * MIB
    """The approximate size of one bucket of changes; larger changes are split by key."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """The format, location and options of a table."""

    format: str
    location: str
    """A folder or a URL of a store (`s3://bucket/prefix?region=…`); for DuckDB the file."""
    name: str = ""
    """The name of the table in its catalog or database."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the format, such as Iceberg's `catalog`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "location", Location(self.location))
        object.__setattr__(self, "options", hide_options(self.options))


@dataclass(frozen=True, slots=True)
class UpkeepPolicy:
    """When files are rewritten, and how long old versions are kept for readers."""

    target_bytes: int = 128 * MIB
    small_bytes: int = 32 * MIB
    """Files smaller than this are merged."""
    min_files: int = 4
    """The minimum number of small files for a rewrite."""
    keep_ms: int = 7 * 24 * 3600 * 1000
    """How long an old version is readable."""
    keep_every_ms: int = 10 * 60 * 1000
    """How long every version is kept; older ones are removed gradually.

    Only formats whose commits grow with the number of versions use it.
    """
    keep_versions: int = 5
    """The number of newest versions that are kept regardless of age."""
    orphan_ms: int = 24 * 3600 * 1000
    """Younger staged files that are not part of the table may still be committed."""
    staged: frozenset[str] = frozenset()
    """Files that will be committed, regardless of their age."""


@dataclass(slots=True)
class UpkeepResult:
    """The results of upkeep."""

    files_compacted: int = 0
    files_written: int = 0
    versions_expired: int = 0
    files_deleted: int = 0
    bytes_deleted: int = 0


class BatchTarget(Protocol):
    """The part of a table that a writer of batches needs."""

    def stage(
        self, name: BatchName, batches: Iterable[pa.RecordBatch], schema: pa.Schema, attempt: str
    ) -> list[DataFile]:
        """Write rows of a batch to files that are not part of the table yet.

        `attempt` is unique to each attempt, so that file names differ.
        """

    def read_staged(self, files: Sequence[DataFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of staged files that have these columns."""

    def check(self, schema: pa.Schema) -> None:
        """Check that files with these columns can be committed; nothing is changed.

        Raises:
            ConfigError: they contradict the table's.
        """

    def commit(
        self,
        name: BatchName,
        files: Sequence[DataFile],
        schema: pa.Schema,
        upsert: Upsert | None = None,
        run: Run = here,
    ) -> bool:
        """Add staged files to the table; return whether this call did it.

        New columns are added to the table first. `run` runs the tasks that rewrite files, if that
        is necessary.

        Raises:
            ConfigError: another query has written under this pipeline's name, the batch is older
                than the last one, or the schema contradicts the table's.
        """

    def replace(
        self,
        name: BatchName,
        files: Sequence[DataFile],
        schema: pa.Schema,
        run: Run = here,
    ) -> bool:
        """Replace the whole contents of the table with these files."""

    def last_commit(self, pipeline: str) -> BatchName | None:
        """Return the last batch of a pipeline, None if there was none."""


class TableContents(Protocol):
    """The part of a table that reading, migration and maintenance need."""

    def schema(self) -> pa.Schema | None:
        """Return the table's columns, None if it does not exist yet."""

    def rename(self, columns: Mapping[str, str]) -> None:
        """Rename columns, given as new names by old names.

        A format that resolves columns in files by name rewrites all files.

        Raises:
            ConfigError: the table does not accept the new names.
        """

    def snapshot(self) -> TableSnapshot | None:
        """Return the current snapshot, None if the table does not exist or has no files."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the table, with all of its columns."""

    def upkeep(self, policy: UpkeepPolicy, now: Time) -> UpkeepResult:
        """Merge small files, expire old versions, and delete unreferenced files."""


class Table(BatchTarget, TableContents, Protocol):
    """A table of one format."""
