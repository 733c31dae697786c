"""The port of a table: what every format promises.

Files are staged by many processes, and become rows of the table by one `commit`. A commit bears
the batch's name; the table remembers the last one of every pipeline in the same transaction that
adds the files. So a commit may be tried again by anyone, at any time after.
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
    """A piece of work that can travel; it returns values that can, too."""

    @property
    def bytes(self) -> int:
        """About how much it reads."""

    def __call__(self) -> Any:
        """Do it."""


Run = Callable[[Sequence[TableTask]], list[Any]]
"""Runs tasks somewhere, in any order, and returns what each returned, in theirs."""


def here(tasks: Sequence[TableTask]) -> list[Any]:
    """Run tasks in this process, one after the other."""
    return [task() for task in tasks]


@dataclass(frozen=True, slots=True)
class BatchName:
    """Which batch of which run of which pipeline."""

    pipeline: str
    query: str
    """Drawn when the pipeline first ran: another one means that its progress was lost."""
    batch: int

    def __str__(self) -> str:
        return f"batch {self.batch} of pipeline {self.pipeline!r} (query {self.query})"


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file with rows, named below its table's location."""

    path: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A table as it was at one moment.

    It can travel to other hosts, which read its files without the table's catalog.
    """

    schema: pa.Schema
    files: Sequence[DataFile]
    read: Callable[[Sequence[DataFile]], Iterator[pa.RecordBatch]]
    """Yields the rows of some of the files, with all columns."""


@dataclass(frozen=True, slots=True)
class Upsert:
    """That a batch's rows replace those of the same key."""

    keys: tuple[str, ...]
    order: tuple[str, ...] = ()
    """Columns by which the last of several rows of a key is found; if none, their order."""
    deleted: str = ""
    """A column that is true in rows that only delete; it does not become one of the table."""
    bucket_bytes: int = 32 * MIB
    """About so many bytes of changes are taken at a time: more of them are split by their keys."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """Which table, where, and how it is kept."""

    format: str
    location: str
    """A folder or a URL of a store (`s3://bucket/prefix?region=…`); for DuckDB the file."""
    name: str = ""
    """What the table is called in its catalog or database."""
    options: Mapping[str, str] = field(default_factory=dict)
    """What only this format knows, such as Iceberg's `catalog`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "location", Location(self.location))
        object.__setattr__(self, "options", hide_options(self.options))


@dataclass(frozen=True, slots=True)
class UpkeepPolicy:
    """What is worth rewriting, and how long readers of old versions are waited for."""

    target_bytes: int = 128 * MIB
    small_bytes: int = 32 * MIB
    """Files below this are put together."""
    min_files: int = 4
    """So many small ones make a rewrite worth its while."""
    keep_ms: int = 7 * 24 * 3600 * 1000
    """How long an old version can still be read."""
    keep_every_ms: int = 10 * 60 * 1000
    """How long every one can; of older ones see `thinning`, in formats whose commits grow with
    the number of versions."""
    keep_versions: int = 5
    """So many stay however old they are."""
    orphan_ms: int = 24 * 3600 * 1000
    """What was staged, is no part of the table and younger than this may yet be committed."""
    staged: frozenset[str] = frozenset()
    """Files that will be committed, however old they are."""


@dataclass(slots=True)
class Upkept:
    """What upkeep did."""

    files_compacted: int = 0
    files_written: int = 0
    versions_expired: int = 0
    files_deleted: int = 0
    bytes_deleted: int = 0


class Table(Protocol):
    """A table of one format."""

    def stage(
        self, name: BatchName, batches: Iterable[pa.RecordBatch], schema: pa.Schema, attempt: str
    ) -> list[DataFile]:
        """Write rows of a batch to files that are no part of the table yet.

        `attempt` is another one for each who tries, so that their files have other names.
        """

    def commit(
        self,
        name: BatchName,
        files: Sequence[DataFile],
        schema: pa.Schema,
        upsert: Upsert | None = None,
        run: Run = here,
    ) -> bool:
        """Make staged files a part of the table; tell whether this call did it.

        Columns that are new to the table are added to it first. `run` is where files are written
        anew, if that has to be done.

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
        """Let these files be all of the table."""

    def last_commit(self, pipeline: str) -> BatchName | None:
        """Return the last batch of a pipeline, None if there was none."""

    def check(self, schema: pa.Schema) -> None:
        """See whether files with these columns can be committed; nothing is changed.

        Raises:
            ConfigError: they contradict the table's.
        """

    def schema(self) -> pa.Schema | None:
        """Return the table's columns, None if it does not exist yet."""

    def rename(self, columns: Mapping[str, str]) -> None:
        """Rename columns, given as old names and new ones.

        A format that finds columns in files by their names rewrites all of them.

        Raises:
            ConfigError: the table does not take the new names.
        """

    def snapshot(self) -> TableSnapshot | None:
        """Return the table as it is now, None if it does not exist yet or has no files."""

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the table, with all of its columns."""

    def read_staged(self, files: Sequence[DataFile], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows of files that are staged and have these columns."""

    def upkeep(self, policy: UpkeepPolicy, now: Time) -> Upkept:
        """Put small files together, forget old versions, and delete what nothing needs."""
