"""Dead letters once more, after a decoder, a schema or a check was mended.

The table of dead letters is only added to. A replay takes those of the batches since the last
replay, and those that failed again in it; what fails once more is added as of this replay. So
what waits to be replayed can be told from the rows alone, whatever upkeep did to the files.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from rookery.errors import ConfigError
from rookery.pipeline.columns import RAW
from rookery.pipeline.engine import Engine, Plan
from rookery.pipeline.frames import frame_of
from rookery.pipeline.headers import filled
from rookery.pipeline.manifests import REPLAYS, Manifest, Manifests, Reached
from rookery.pipeline.run import open_engine
from rookery.pipeline.spec import Pipeline, readable
from rookery.tables.folder import below

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCH: Final = "batch"
_FIRST: Final = {_BATCH: {"0": -1}}
"""In the place of offsets: the last batch whose dead letters were replayed."""


def replay_dead_letters(spark: SparkSession, pipeline: Pipeline) -> dict[str, int]:
    """Decode dead letters again; return how many became silver rows, and how many did not.

    Raises:
        ConfigError: there is no table of dead letters that can be read, or rows replace others.
    """
    if pipeline.silver.upsert():
        raise ConfigError(
            f"pipeline {pipeline.name!r}: its rows replace others, so a dead letter could undo"
            " what came after it: write the mended records to the topic instead"
        )
    until = open_engine(pipeline).last
    engine = _engine(pipeline)
    engine.recover()
    dead = waiting(spark, pipeline, engine.last, until.batch if until else -1)
    if dead is None:
        return {}
    reached = Reached({_BATCH: {"0": until.batch if until else -1}}, {})
    metrics = engine.run(filled(dead.select(*RAW.names)), reached)
    return metrics.rows if metrics else {}


def waiting(
    spark: SparkSession, pipeline: Pipeline, last: Manifest | None, until: int
) -> DataFrame | None:
    """Return the dead letters that were not replayed yet, None if there is no table of them.

    Raises:
        ConfigError: it cannot be read.
    """
    sinks = readable(pipeline.of("dead-letters"))
    if not sinks:
        raise ConfigError(
            f"pipeline {pipeline.name!r}: dead letters can be replayed from a table of files:"
            " add a sink of the layer 'dead-letters' with the format parquet, iceberg or delta"
        )
    frame = frame_of(spark, sinks[0].table())
    if frame is None:
        return None
    after = last.ends[_BATCH]["0"] if last else -1
    fresh = f"replay IS NULL AND batch > {after} AND batch <= {until}"
    return frame.where(f"({fresh})" + (f" OR replay = {last.batch}" if last else ""))


def _engine(pipeline: Pipeline) -> Engine:
    plan = Plan.of(pipeline)
    sinks = {
        number: schema
        for number, schema in plan.sinks.items()
        if pipeline.sinks[number].layer in ("silver", "dead-letters")
    }
    manifests = Manifests(below(pipeline.state, REPLAYS))
    origin = manifests.origin() or manifests.begin(_FIRST)
    plan = replace(plan, sinks=sinks, kind="replay")
    return Engine(plan, f"{pipeline.name}/replay", manifests, origin, is_ordered=False)
