"""A pipeline's run: batch after batch, until all is read or it is told to end.

Spark's tasks do the work. That it goes on is seen to here and not by a streaming query: where a
batch begins is in the manifests, and a query would bring each row through Java to no use.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING

from rookery.clock import SystemClock
from rookery.pipeline.engine import BatchEngine, BatchPlan, Hook, Reread
from rookery.pipeline.keyroutes import routed
from rookery.pipeline.manifests import Manifests, PipelinePosition
from rookery.pipeline.metrics import BatchMetrics
from rookery.pipeline.positions import batch_end, lag, next_batch, starts
from rookery.pipeline.reread import read_options, rows_between
from rookery.pipeline.sparktasks import on_spark
from rookery.pipeline.spec import Pipeline, Source
from rookery.pipeline.stored import StoredRows
from rookery.pipeline.upkeep import Beside
from rookery.spark.checkpoint import check_session_tables
from rookery.spark.offset import StreamOffset
from rookery.spark.options import ReadOptions
from rookery.spark.streamread import StreamReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Told = Callable[[BatchMetrics], None]


@dataclass(frozen=True, slots=True)
class BatchPace:
    """When batches are made."""

    interval_ms: int = 1000
    is_available_now: bool = False
    """Read what there is now, in as many batches as it takes, and end."""
    end: Event = field(default_factory=Event)
    """Set by others, it ends the run after the batch that is under way."""


def open_engine(
    pipeline: Pipeline,
    hook: Hook | None = None,
    spark: SparkSession | None = None,
    told: Told = lambda _: None,
) -> BatchEngine:
    """Return a pipeline's engine, with what was left half-done committed.

    Args:
        pipeline: what is declared.
        hook: told before every step.
        spark: where upserts are done; None: in this process, one part after the other.
        told: is given the figures of a batch that was left half-done.

    Raises:
        ConfigError: the pipeline or its state cannot be used.
        Unavailable: the log, a store or a registry is out of reach.
    """
    plan = BatchPlan.of(pipeline)
    if spark is not None:
        sinks = [sink.location for sink in pipeline.sinks if sink.format != "topic"]
        check_session_tables(spark, [*sinks, *(gold.location for gold in pipeline.gold)])
    manifests = Manifests(pipeline.state)
    origin = manifests.origin() or manifests.begin(*starts(pipeline.source))
    engine = BatchEngine(plan, pipeline.name, manifests, origin)
    engine.told = telling(engine, told)
    if hook is not None:
        engine.hook = hook
    if spark is not None:
        engine.run_tasks = on_spark(spark)
        engine.reread = reading_again(spark, engine)
    engine.recover()
    return engine


def telling(engine: BatchEngine, told: Told) -> Told:
    """Return what passes figures on, with the records that were not read when they were made."""

    def tell(metrics: BatchMetrics) -> None:
        # A topic may have been deleted; whether that ends the run, the next batch decides.
        metrics.lag = lag(engine.pipeline.source, engine.reached(), is_strict=False)
        told(metrics)

    return tell


def reading_again(spark: SparkSession, engine: BatchEngine) -> Reread:
    """Return what gives an engine rows of its source once more."""
    return lambda begin, end: routed(engine.plan, rows_between(spark, engine.pipeline, begin, end))


def run_pipeline(
    spark: SparkSession,
    pipeline: Pipeline,
    pace: BatchPace,
    told: Told = lambda _: None,
    hook: Hook | None = None,
) -> BatchEngine:
    """Run a pipeline until it has read all (`is_available_now`), or its pace says that it ends.

    Raises:
        Error: what went wrong in a batch; the next run goes on from there.
        PySparkException: a task failed for reasons of its own, as often as Spark tries it.
    """
    engine = open_engine(pipeline, hook, spark, told)
    upkeep = Beside(pipeline)
    batches = _batches(spark, pipeline.source, engine.reached(), pace)
    with closing(upkeep), closing(batches):
        for rows, end in batches:
            if engine.plan.may_grow:
                engine.plan = BatchPlan.of(pipeline, engine.plan)
            metrics = engine.run(routed(engine.plan, rows), end)
            if metrics is not None:
                engine.told(metrics)
                upkeep.after(metrics.batch)
    engine.finish()
    return engine


def _batches(
    spark: SparkSession, source: Source, reached: PipelinePosition, pace: BatchPace
) -> Generator[tuple[StoredRows, PipelinePosition], None, None]:
    """Yield batches and where they end: what Spark would ask the source for, asked for here."""
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
            # This also publishes how far it has come, if a group is named.
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
