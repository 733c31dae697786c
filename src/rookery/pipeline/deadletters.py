"""Dead letters that wait to be replayed: told by their numbers alone, whatever upkeep did to files.

Those of a backfill have numbers of their own, below zero: its batches are counted from 0 again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from rookery.errors import ConfigError
from rookery.pipeline.columns import DEAD, RAW
from rookery.pipeline.engine import sink_key
from rookery.pipeline.frames import frame_of, spark_schema
from rookery.pipeline.manifests import BACKFILL, Manifests, Offsets, identities
from rookery.pipeline.spec import Pipeline, Sink, readable
from rookery.tables.folder import below
from rookery.tables.open import open_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SAME: Final = ("topic", "partition", "offset", "timestamp", "value", "batch", "replay")
"""A row that two tables have with these is one dead letter."""


class DeadLetterMarks(NamedTuple):
    """The last ones of which dead letters are done, or are there."""

    batch: int = -1
    backfill: int = -1
    replay: int = -1
    """Of those that have failed again."""

    @classmethod
    def of(cls, ends: Offsets) -> DeadLetterMarks:
        """Read them: manifests of replays have them in the place of offsets."""
        return cls(*(ends.get(name, {}).get("0", -1) for name in cls._fields))

    def ends(self) -> Offsets:
        """Return them as a manifest has them."""
        return {name: {"0": number} for name, number in self._asdict().items()}

    def later(self, other: DeadLetterMarks) -> DeadLetterMarks:
        """Return what is done if both are."""
        return DeadLetterMarks(*map(max, self, other))


def backfill_number(batch: int) -> int:
    """Return what dead letters of a backfill have as their batch."""
    return -1 - batch


def complete(pipeline: Pipeline) -> DeadLetterMarks:
    """Return the last batches of which the tables have all dead letters; replays are left out.

    Nothing is committed for that: the pipeline may be running, and be further on in a moment.
    """
    own, filling, _ = identities(pipeline.name)
    return DeadLetterMarks(
        _complete(pipeline, pipeline.state, own),
        _complete(pipeline, below(pipeline.state, BACKFILL), filling),
    )


def waiting(
    spark: SparkSession, pipeline: Pipeline, done: DeadLetterMarks, until: DeadLetterMarks
) -> DataFrame:
    """Return the dead letters between two marks, as the raw rows that they were.

    Raises:
        ConfigError: there is no table of them that can be read.
    """
    found: DataFrame | None = None
    for sink in _tables(pipeline):
        frame = frame_of(spark, sink.table())
        if frame is not None:
            rows = frame.select(*DEAD.names).where(_between(done, until))
            # Each may have topics that the others have not, and topics that they have as well.
            found = rows if found is None else found.union(rows).dropDuplicates([*_SAME])
    if found is None:
        return spark.createDataFrame([], spark_schema(RAW))
    return found.select(*RAW.names)


def _between(done: DeadLetterMarks, until: DeadLetterMarks) -> str:
    fresh = f"batch > {done.batch} AND batch <= {until.batch}"
    newest, oldest = backfill_number(done.backfill), backfill_number(until.backfill)
    filled = f"batch < {newest} AND batch >= {oldest}"
    again = f"replay > {done.replay} AND replay <= {until.replay}"
    return f"replay IS NULL AND ({fresh} OR {filled}) OR {again}"


def _tables(pipeline: Pipeline) -> list[Sink]:
    found = readable(pipeline.of("dead-letters"))
    if not found:
        raise ConfigError(
            f"pipeline {pipeline.name!r}: dead letters can be replayed from a table of files:"
            " add a sink of the layer 'dead-letters' with the format parquet, iceberg or delta"
        )
    return found


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
