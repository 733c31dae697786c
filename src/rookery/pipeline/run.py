"""Runs a pipeline: batch after batch, until all records are read or the run is stopped.

Spark's tasks do the work. This module schedules the batches, not a streaming query. The start of a
batch is in the manifests, and a query would needlessly pass each row through Java.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING

from rookery.clock import SystemClock
from rookery.pipeline.batch.engine import BatchEngine, BatchPlan, Hook, Reread
from rookery.pipeline.batch.keyroutes import route_rows
from rookery.pipeline.batch.sparktasks import on_spark
from rookery.pipeline.batch.storedrows import StoredRows
from rookery.pipeline.declaration.spec import Pipeline, Source
from rookery.pipeline.manifests import Manifests, PipelinePosition
from rookery.pipeline.metrics import BatchMetrics, OnBatch
from rookery.pipeline.positions import batch_end, lag, next_batch, starts
from rookery.pipeline.reprocess.rowrange import read_options, rows_between
from rookery.pipeline.upkeep import UpkeepThread
from rookery.spark.checkpoint import check_session_tables
from rookery.spark.read.offset import StreamOffset
from rookery.spark.read.options import ReadOptions
from rookery.spark.read.streamread import StreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class BatchPace:
    """The schedule of batches."""

    interval_ms: int = 1000
    is_available_now: bool = False
    """Read all records that exist at the start, in several batches if needed, and end."""
    end: Event = field(default_factory=Event)
    """If set by another thread, the run ends after the current batch."""


def open_engine(
    pipeline: Pipeline,
    hook: Hook | None = None,
    spark: SparkSession | None = None,
    on_batch: OnBatch = lambda _: None,
) -> BatchEngine:
    """Return a pipeline's engine, after committing any unfinished batch.

    Args:
        pipeline: the declaration.
        hook: called before every step.
        spark: the session that runs upserts; None runs them sequentially in this process.
        on_batch: receives the metrics of a batch that was left unfinished.

    Raises:
        ConfigError: the pipeline or its state is invalid.
        Unavailable: the log, a store or a registry cannot be reached.
    """
    plan = BatchPlan.of(pipeline)
    if spark is not None:
        sinks = [sink.location for sink in pipeline.sinks if sink.format != "topic"]
        check_session_tables(spark, [*sinks, *(gold.location for gold in pipeline.gold)])
    manifests = Manifests(pipeline.state)
    origin = manifests.origin() or manifests.begin(*starts(pipeline.source))
    engine = BatchEngine(plan, pipeline.name, manifests, origin)
    engine.on_batch = add_lag(engine, on_batch)
    if hook is not None:
        engine.hook = hook
    if spark is not None:
        engine.run_tasks = on_spark(spark)
        engine.reread = make_reread(spark, engine)
    engine.recover()
    return engine


def add_lag(engine: BatchEngine, on_batch: OnBatch) -> OnBatch:
    """Return a callback that adds the current lag to metrics and passes them on."""

    def receive(metrics: BatchMetrics) -> None:
        # A topic may have been deleted. The next batch decides whether that ends the run.
        metrics.lag = lag(engine.pipeline.source, engine.read_position(), is_strict=False)
        on_batch(metrics)

    return receive


def make_reread(spark: SparkSession, engine: BatchEngine) -> Reread:
    """Return a function that reads rows of an engine's source again."""
    return lambda begin, end: route_rows(
        engine.plan, rows_between(spark, engine.pipeline, begin, end)
    )


def run_pipeline(
    spark: SparkSession,
    pipeline: Pipeline,
    pace: BatchPace,
    on_batch: OnBatch = lambda _: None,
    hook: Hook | None = None,
) -> BatchEngine:
    """Run a pipeline until all is read (`is_available_now`) or `pace.end` is set.

    Raises:
        Error: a batch failed; the next run continues from there.
        PySparkException: a task failed with another error in each of Spark's attempts.
    """
    engine = open_engine(pipeline, hook, spark, on_batch)
    upkeep = UpkeepThread(pipeline)
    batches = _batches(spark, pipeline.source, engine.read_position(), pace)
    with closing(upkeep), closing(batches):
        for rows, end in batches:
            if engine.plan.may_grow:
                engine.plan = BatchPlan.of(pipeline, engine.plan)
            metrics = engine.run(route_rows(engine.plan, rows), end)
            if metrics is not None:
                engine.on_batch(metrics)
                upkeep.after(metrics.batch)
    engine.finish()
    return engine


def _batches(
    spark: SparkSession, source: Source, reached: PipelinePosition, pace: BatchPace
) -> Generator[tuple[StoredRows, PipelinePosition], None, None]:
    """Yield batches and their ends, with the calls that Spark would make to the source."""
    given = read_options(source)
    given["subscribe"] = ",".join(source.topics)
    given["maxOffsetsPerTrigger"] = str(source.max_offsets_per_trigger)
    given["kafka.group.id"] = source.group_id
    options = ReadOptions.of(given, is_stream=True)
    reader, clock = StreamReader(options), SystemClock()
    try:
        at = next_batch(source, reached).as_json()
        if pace.is_available_now:
            reader.prepareForTriggerAvailableNow()
        while True:
            begun_ms = clock.monotonic_ms()
            # This also publishes the offsets, if a group is named.
            end = reader.latestOffset(at, reader.getDefaultReadLimit())
            if pace.end.is_set():
                return
            if end != at:
                rows = StoredRows(spark, options, reader.partitions(at, end))
                reached = batch_end(reader.topic_names(), reached, StreamOffset.of(end))
                yield rows, reached
                at = end
            elif pace.is_available_now:
                return
            if not pace.is_available_now:
                left_ms = begun_ms + pace.interval_ms - clock.monotonic_ms()
                pace.end.wait(max(left_ms, 0) / 1000)
    finally:
        reader.stop()
