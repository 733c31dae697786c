"""Dead letters that wait for replay, identified by batch numbers and not by files.

Upkeep can rewrite the files. Dead letters of a backfill have negative numbers, because its batches
are counted from 0 again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rookery.errors import ConfigError
from rookery.pipeline.batch.engine import sink_key
from rookery.pipeline.batch.frames import frame_of, spark_schema
from rookery.pipeline.declaration.columns import DEAD, RAW
from rookery.pipeline.declaration.spec import Pipeline, Sink, readable
from rookery.pipeline.manifests import BACKFILL, Manifests, Offsets, identities
from rookery.tables.folder import below
from rookery.tables.open import open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SAME: Final = ("topic", "partition", "offset", "timestamp", "value", "batch", "replay")
"""Rows of two tables with equal values in these columns are the same dead letter."""


class DeadLetterMarks(NamedTuple):
    """The last batch, backfill batch and replay whose dead letters are done or present."""

    batch: int = -1
    backfill: int = -1
    replay: int = -1
    """The last replay whose repeated failures are done or present."""

    @classmethod
    def of(cls, ends: Offsets) -> DeadLetterMarks:
        """Parse marks from a replay's manifest, which stores them instead of offsets."""
        return cls(*(ends.get(name, {}).get("0", -1) for name in cls._fields))

    def ends(self) -> Offsets:
        """Return the marks in the form that a manifest stores."""
        return {name: {"0": number} for name, number in self._asdict().items()}

    def later(self, other: DeadLetterMarks) -> DeadLetterMarks:
        """Return the maximum of both marks, field by field."""
        return DeadLetterMarks(*map(max, self, other))


def backfill_number(batch: int) -> int:
    """Return the batch number for dead letters of a backfill."""
    return -1 - batch


def complete(pipeline: Pipeline) -> DeadLetterMarks:
    """Return the last batches whose dead letters are all in the tables; replays are excluded.

    This commits nothing, because the pipeline may be running.
    """
    own, filling, _ = identities(pipeline.name)
    return DeadLetterMarks(
        _complete(pipeline, pipeline.state, own),
        _complete(pipeline, below(pipeline.state, BACKFILL), filling),
    )


def find_waiting(
    spark: SparkSession, pipeline: Pipeline, done: DeadLetterMarks, until: DeadLetterMarks
) -> DataFrame:
    """Return the dead letters between two marks, as the original raw rows.

    Raises:
        ConfigError: there is no readable table of dead letters.
    """
    letters: DataFrame | None = None
    for sink in _tables(pipeline):
        frame = frame_of(spark, sink.table())
        if frame is not None:
            rows = frame.select(*DEAD.names).where(_between(done, until))
            # The tables can have different topics, and can have topics in common.
            letters = rows if letters is None else letters.union(rows).dropDuplicates([*_SAME])
    if letters is None:
        return spark.createDataFrame([], spark_schema(RAW))
    return letters.select(*RAW.names)


def _between(done: DeadLetterMarks, until: DeadLetterMarks) -> str:
    fresh = f"batch > {done.batch} AND batch <= {until.batch}"
    newest, oldest = backfill_number(done.backfill), backfill_number(until.backfill)
    filled = f"batch < {newest} AND batch >= {oldest}"
    again = f"replay > {done.replay} AND replay <= {until.replay}"
    return f"replay IS NULL AND ({fresh} OR {filled}) OR {again}"


def _tables(pipeline: Pipeline) -> list[Sink]:
    sinks = readable(pipeline.of("dead-letters"))
    if not sinks:
        raise ConfigError(
            f"pipeline {pipeline.name!r}: dead letters can be replayed from a table of files:"
            " add a sink of the layer 'dead-letters' with the format parquet, iceberg or delta"
        )
    return sinks


def _complete(pipeline: Pipeline, state: str, identity: str) -> int:
    last = Manifests(state).last()
    if last is None:
        return -1
    for sink in _tables(pipeline):
        if sink_key(sink) in last.sinks:
            known = open_table(sink.table()).last_commit(identity)
            if known is None or known.batch < last.batch:
                return last.batch - 1
    return last.batch
