"""Rebuild: computes silver again from its source records.

All rows are staged in a separate chain of manifests. They then become one batch of the pipeline,
whose files replace all files of each silver table. So readers see either the old table or the new
one. If the pipeline runs meanwhile, either its batch or the rebuild fails. Records that a backfill
has not read are not read here either, so that they can be added later. Dead letters are decoded
again with all other records. The batch contains those that fail again, and all earlier ones count
as done.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

from rookery.errors import ConfigError, Conflict
from rookery.pipeline.batch.engine import BatchEngine, BatchPlan, sink_key
from rookery.pipeline.declaration.spec import Pipeline
from rookery.pipeline.manifests import BACKFILL, CHAINS, BatchManifest, Manifests, StagedFiles
from rookery.pipeline.metrics import OnBatch
from rookery.pipeline.reprocess.backfill import open_backfill, refuse_ordered
from rookery.pipeline.reprocess.deadletters import DeadLetterMarks
from rookery.pipeline.reprocess.rebuildstate import staging_state
from rookery.pipeline.reprocess.replay import open_replays
from rookery.pipeline.reprocess.slices import add_counts, log_start, read_slices
from rookery.pipeline.reprocess.spans import BatchSpan, begins_in, check_whole, still_read
from rookery.pipeline.run import open_engine
from rookery.tables.folder import below
from rookery.tables.port import DataFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rebuild(
    spark: SparkSession,
    pipeline: Pipeline,
    on_batch: OnBatch = lambda _: None,
    recovered: OnBatch = lambda _: None,
) -> dict[str, int]:
    """Compute the silver tables again, up to the pipeline's position, and replace them.

    Args:
        spark: the session.
        pipeline: the declaration.
        on_batch: receives the metrics of each slice.
        recovered: receives the metrics of a batch that an earlier run left unfinished.

    Raises:
        ConfigError: the pipeline has not run, or the order of its rows matters.
        Conflict: the pipeline, a backfill or a replay ran meanwhile: stop it, and call this again;
            or records of existing rows are no longer in the log.
    """
    refuse_ordered(pipeline, "rebuild")
    live = open_engine(pipeline, spark=spark, on_batch=recovered)
    if live.last is None:
        raise ConfigError(f"pipeline {pipeline.name!r} has no batch yet; run it first")
    # Finish their pending batches first: these belong to the old tables, not to the new ones.
    replays, filled = open_replays(spark, pipeline), _backfill(spark, pipeline)
    heads = _heads(live.last, filled.last if filled else None, replays.last)
    read = [filled, live] if filled else [live]
    spans = [BatchSpan(engine.origin.reached, engine.read_position()) for engine in read]
    there = log_start(pipeline)
    check_whole(live, spans, there)
    staging = _make_engine(pipeline, heads)
    rows: dict[str, int] = {}
    for span in spans:
        begin, until = begins_in(there, span), still_read(live.read_position(), span)
        add_counts(rows, read_slices(spark, staging, begin, until, on_batch))
    states = (pipeline.state, *(below(pipeline.state, name) for name in CHAINS))
    if _heads(*(Manifests(state).last() for state in states)) != heads:
        raise Conflict(
            f"pipeline {pipeline.name!r}: rebuild: it ran meanwhile, or a backfill or a replay of"
            " it; stop that, and call this again"
        )
    if staging.last is not None:
        live.manifests.add(_swap(live.last, staging, heads))
        live.recover()
    return rows


def _backfill(spark: SparkSession, pipeline: Pipeline) -> BatchEngine | None:
    """Return the pipeline's backfill, None if there was none: opening it would start one."""
    has_begun = Manifests(below(pipeline.state, BACKFILL)).origin() is not None
    return open_backfill(spark, pipeline) if has_begun else None


def _heads(*lasts: BatchManifest | None) -> DeadLetterMarks:
    """Return the last batches of all chains that the tables contain."""
    return DeadLetterMarks(*(last.batch if last else -1 for last in lasts))


def _make_engine(pipeline: Pipeline, heads: DeadLetterMarks) -> BatchEngine:
    batch = heads.batch + 1
    plan = BatchPlan.of(pipeline)
    sinks = {
        number: schema
        for number, schema in plan.sinks.items()
        if pipeline.sinks[number].layer in ("silver", "dead-letters")
        and pipeline.sinks[number].format != "topic"
    }
    plan = replace(plan, sinks=sinks, number=lambda _: batch)
    manifests = Manifests(staging_state(pipeline.state, batch, _digest(plan, heads)))
    origin = manifests.origin() or manifests.begin(*log_start(pipeline))
    engine = BatchEngine(plan, pipeline.name, manifests, origin, is_ordered=False, is_staging=True)
    engine.recover()
    return engine


def _digest(plan: BatchPlan, heads: DeadLetterMarks) -> str:
    """Return a digest that changes if staged slices are incompatible with later ones."""
    decoders = [(name, decoder.schema, decoder.version) for name, decoder in plan.decoders.values()]
    text = repr((plan.pipeline, decoders, plan.silver, heads.backfill))
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _swap(last: BatchManifest, staging: BatchEngine, heads: DeadLetterMarks) -> BatchManifest:
    """Merge all slices into one manifest whose files replace each silver table."""
    files: dict[str, list[DataFile]] = {}
    schemas: dict[str, str] = {}
    for manifest in staging.manifests.all():
        for key, staged in manifest.sinks.items():
            files.setdefault(key, []).extend(staged.files)
            schemas[key] = staged.schema
    sinks = {key: StagedFiles(tuple(data_files), schemas[key]) for key, data_files in files.items()}
    silver = {sink_key(sink) for sink in staging.pipeline.of("silver")}
    return replace(
        last,
        batch=heads.batch + 1,
        at=staging.clock.now_ms(),
        sinks=sinks,
        replaces=tuple(key for key in sinks if key in silver),
        rebuilt=heads.ends(),
        figures=None,
    )
