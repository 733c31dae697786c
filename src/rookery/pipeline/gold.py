"""Gold: tables that SQL computes from silver, always as a whole.

A table is computed again if silver has other batches than before, or if the SQL has changed. The
pipeline's state records the inputs of a table after it is written. If that record is lost, the
table is only computed again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from rookery.clock import SystemRandom
from rookery.errors import ConfigError, Conflict
from rookery.pipeline.batch.engine import BatchEngine, sink_key
from rookery.pipeline.batch.frames import arrow_schema, frame_of
from rookery.pipeline.batch.sparktasks import on_spark
from rookery.pipeline.declaration.spec import Gold, Pipeline, Sink, readable
from rookery.pipeline.manifests import identities
from rookery.pipeline.reprocess.migration import rename_former
from rookery.spark.failures import own_errors
from rookery.tables.folder import TableFolder
from rookery.tables.open import open_table
from rookery.tables.port import BatchName, DataFile, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NOTES: Final = "gold/"

Commits = Sequence[tuple[str, Sequence[BatchName | None]]]
"""By silver table, the last batch of the pipeline, of its backfill and of its replays."""


def make_gold(spark: SparkSession, engine: BatchEngine) -> list[str]:
    """Compute the gold tables that are older than silver or their SQL; return their names."""
    pipeline, made = engine.pipeline, []
    # Read before silver: if silver grows meanwhile, the next run computes gold again.
    commits = _commits(pipeline) if pipeline.gold else []
    if not any(batch for _, batches in commits for batch in batches):
        return []
    _views(spark, pipeline)
    for gold in pipeline.gold:
        name = f"{engine.identity}/gold/{gold.name}"
        last = open_table(gold.table()).last_commit(name)
        note = _Note(pipeline, gold, commits)
        if last is None or not note.is_of(last.batch):
            batch = last.batch + 1 if last else 0
            # A concurrent run may have used an older silver; the next run corrects that.
            with _explain_errors(gold):
                is_made = _make(spark, gold, BatchName(name, engine.origin.query, batch))
            if is_made:
                note.write(batch)
                made.append(gold.name)
    return made


@contextmanager
def _explain_errors(gold: Gold) -> Iterator[None]:
    """Name the gold table whose SQL failed, and report that the other tables are complete."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 (it takes a second)

    try:
        with own_errors():
            yield
    except PySparkException as error:
        line = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"gold {gold.name!r}: {line}. Silver is committed; correct the SQL, and run again"
        ) from error


def _commits(pipeline: Pipeline) -> Commits:
    names = identities(pipeline.name)
    tables = [
        (sink_key(sink), open_table(sink.table())) for sink in readable(pipeline.of("silver"))
    ]
    return [(key, [table.last_commit(name) for name in names]) for key, table in tables]


class _Note:
    """The inputs of a batch of a gold table, encoded in a file name."""

    def __init__(self, pipeline: Pipeline, gold: Gold, commits: Commits) -> None:
        self._folder = TableFolder(pipeline.state)
        self._prefix = f"{_NOTES}{_digest(gold.name)}/"
        self._inputs = _digest(repr((gold.sql, commits)))

    def is_of(self, batch: int) -> bool:
        return self._folder.size(self._path(batch)) is not None

    def write(self, batch: int) -> None:
        for old in self._folder.list(self._prefix):
            self._folder.delete(old.key)
        with suppress(Conflict):
            self._folder.create(self._path(batch), b"{}")

    def _path(self, batch: int) -> str:
        return f"{self._prefix}{batch:020}-{self._inputs}.json"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def view_names(pipeline: Pipeline) -> Iterator[tuple[Sink, set[str]]]:
    """Yield the silver tables that SQL can read, with their view names."""
    for number, sink in enumerate(readable(pipeline.of("silver"))):
        yield sink, {sink.name or f"silver{number or ''}", *(() if number else ("silver",))}


def _views(spark: SparkSession, pipeline: Pipeline) -> None:
    for sink, names in view_names(pipeline):
        frame = frame_of(spark, sink.table())
        if frame is not None:
            for name in names:
                frame.createOrReplaceTempView(name)


def _make(spark: SparkSession, gold: Gold, name: BatchName) -> bool:
    """Compute a table; False if another run has committed this batch."""
    frame = spark.sql(gold.sql)
    schema = arrow_schema(frame)
    staged = frame.mapInArrow(
        _Stage(gold.table(), name, schema), "path string, rows long, bytes long"
    )
    files = [DataFile(row["path"], row["rows"], row["bytes"]) for row in staged.collect()]
    table = open_table(gold.table())
    rename_former(table, schema)
    return table.replace(name, files, schema, on_spark(spark))


@dataclass(frozen=True, slots=True)
class _Stage:
    spec: TableSpec
    name: BatchName
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = f"gold-{SystemRandom().token(8).hex()}"
        files = open_table(self.spec).stage(self.name, batches, self.schema, attempt)
        if files:
            yield pa.RecordBatch.from_pylist([asdict(file) for file in files])
