"""Replays dead letters after a decoder, a schema or a check was fixed.

The table of dead letters is append-only. A replay takes the dead letters of the batches since the
last replay, and those that failed again in it. Rows that fail again are added with the number of
this replay. So the pending dead letters can be determined from the rows alone, even after upkeep
rewrites files. Dead letters that a rebuild has decoded again are done; it adds those that fail
again to its own batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rookery.errors import ConfigError
from rookery.pipeline.batch.engine import BatchEngine, BatchPlan, RawRows, Reread
from rookery.pipeline.batch.headers import fill_headers
from rookery.pipeline.batch.keyroutes import route_rows
from rookery.pipeline.declaration.spec import Pipeline
from rookery.pipeline.manifests import REPLAYS, Manifests, PipelinePosition, identities
from rookery.pipeline.reprocess.deadletters import DeadLetterMarks, complete, find_waiting
from rookery.pipeline.reprocess.rebuildstate import read_rebuilt, unless_rebuilt
from rookery.tables.folder import below

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def replay_dead_letters(spark: SparkSession, pipeline: Pipeline) -> dict[str, int]:
    """Decode dead letters again; return the row counts by layer.

    The pipeline can be running: its own batches are read and not changed.

    Raises:
        ConfigError: there is no readable table of dead letters, or rows replace others.
        Conflict: silver was rebuilt meanwhile.
    """
    if pipeline.silver.upsert():
        raise ConfigError(
            f"pipeline {pipeline.name!r}: its rows replace others, so a dead letter could undo"
            " what came after it: write the mended records to the topic instead"
        )
    engine = open_replays(spark, pipeline)
    engine.hook = unless_rebuilt(pipeline.state)
    last = engine.last.batch if engine.last else -1
    done = DeadLetterMarks.of(engine.ends())._replace(replay=last - 1)
    until = complete(pipeline)._replace(replay=last)
    metrics = engine.run(_rows(spark, engine.plan, done, until), PipelinePosition(until.ends(), {}))
    return metrics.rows if metrics else {}


def open_replays(spark: SparkSession, pipeline: Pipeline) -> BatchEngine:
    """Return the engine of a pipeline's replays, after committing any unfinished batch."""
    plan = BatchPlan.of(pipeline)
    sinks = {
        number: schema
        for number, schema in plan.sinks.items()
        if pipeline.sinks[number].layer in ("silver", "dead-letters")
    }
    manifests = Manifests(below(pipeline.state, REPLAYS))
    origin = manifests.origin() or manifests.begin(DeadLetterMarks().ends())
    plan = replace(plan, sinks=sinks, kind="replay")
    _, _, identity = identities(pipeline.name)
    engine = BatchEngine(plan, identity, manifests, origin, is_ordered=False)
    engine.reread = _make_reread(spark, plan)
    engine.recover()
    return engine


def _make_reread(spark: SparkSession, plan: BatchPlan) -> Reread:
    return lambda begin, end: _rows(
        spark, plan, DeadLetterMarks.of(begin.ends), DeadLetterMarks.of(end.ends)
    )


def _rows(
    spark: SparkSession, plan: BatchPlan, done: DeadLetterMarks, until: DeadLetterMarks
) -> RawRows:
    done = done.later(DeadLetterMarks.of(read_rebuilt(plan.pipeline.state)))
    return route_rows(plan, fill_headers(find_waiting(spark, plan.pipeline, done, until)))
