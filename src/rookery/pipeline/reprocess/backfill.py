"""Backfill: adds the records before a pipeline's origin to its tables.

A backfill has its own identity and its own chain of manifests, so the pipeline can run at the same
time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rookery.errors import ConfigError
from rookery.pipeline.batch.engine import BatchEngine, BatchPlan
from rookery.pipeline.declaration.spec import Pipeline
from rookery.pipeline.manifests import BACKFILL, Manifests, identities
from rookery.pipeline.metrics import OnBatch
from rookery.pipeline.reprocess.deadletters import backfill_number
from rookery.pipeline.reprocess.rebuildstate import unless_rebuilt
from rookery.pipeline.reprocess.slices import log_start, read_slices
from rookery.pipeline.run import make_reread
from rookery.tables.folder import below

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def backfill(
    spark: SparkSession, pipeline: Pipeline, on_batch: OnBatch = lambda _: None
) -> dict[str, int]:
    """Read the records before the origin of a pipeline that has run; return rows by layer.

    Raises:
        ConfigError: the pipeline has not run, or the order of its rows matters.
        Conflict: silver was rebuilt meanwhile; call this again.
    """
    refuse_ordered(pipeline, "backfill")
    origin = Manifests(pipeline.state).origin()
    if origin is None:
        raise ConfigError(
            f"pipeline {pipeline.name!r} never ran, so there is nothing before its beginning:"
            ' run it with starting-offsets = "earliest"'
        )
    engine = open_backfill(spark, pipeline)
    engine.hook = unless_rebuilt(pipeline.state)
    return read_slices(spark, engine, {}, origin.reached, on_batch)


def open_backfill(spark: SparkSession, pipeline: Pipeline) -> BatchEngine:
    """Return the engine of a pipeline's backfill, after committing any unfinished batch."""
    plan = replace(BatchPlan.of(pipeline), number=backfill_number)
    manifests = Manifests(below(pipeline.state, BACKFILL))
    origin = manifests.origin() or manifests.begin(*log_start(pipeline))
    _, identity, _ = identities(pipeline.name)
    engine = BatchEngine(plan, identity, manifests, origin, is_ordered=False)
    engine.reread = make_reread(spark, engine)
    engine.recover()
    return engine


def refuse_ordered(pipeline: Pipeline, what: str) -> None:
    """Refuse pipelines whose rows must be in order, since a backfill adds older rows later.

    Raises:
        ConfigError: the order of the rows matters.
    """
    why = ""
    if pipeline.silver.upsert():
        why = "its rows replace others, and older ones must not replace newer ones"
    elif pipeline.silver.dedupe:
        why = "which keys were seen at that time is known no more, so that they would count twice"
    if why:
        raise ConfigError(
            f"pipeline {pipeline.name!r}: {what}: {why}. Declare another pipeline with tables of"
            " its own that begins at earliest, and use those when it has caught up"
        )
