"""A pipeline's run: a streaming query whose batches the engine takes, until it is told to end.

Each run has a checkpoint of its own, which is thrown away: where to begin is in the manifests.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rookery.errors import Error
from rookery.pipeline.engine import Engine, Hook, Plan
from rookery.pipeline.headers import filled
from rookery.pipeline.manifests import Manifests, Offsets
from rookery.pipeline.metrics import BatchMetrics
from rookery.pipeline.positions import complete, lag, planned_ends, publish, starts
from rookery.pipeline.routing import routed
from rookery.pipeline.sparktasks import on_spark
from rookery.pipeline.spec import Pipeline, Source
from rookery.pipeline.upkeep import Beside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Told = Callable[[BatchMetrics], None]

_STARTS: Final = 10
_SLOW: Final = "failed to connect back"
"""What Spark says if a busy host takes more than ten seconds to start a Python: try again."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When batches are made."""

    interval_ms: int = 1000
    is_available_now: bool = False
    """Read what there is now, in as many batches as it takes, and end."""


def open_engine(
    pipeline: Pipeline, hook: Hook | None = None, spark: SparkSession | None = None
) -> Engine:
    """Return a pipeline's engine, with what was left half-done committed.

    Args:
        pipeline: what is declared.
        hook: told before every step.
        spark: where upserts are done; None: in this process, one part after the other.

    Raises:
        ConfigError: the pipeline or its state cannot be used.
        Unavailable: the log, a store or a registry is out of reach.
    """
    plan = Plan.of(pipeline)
    manifests = Manifests(pipeline.state)
    origin = manifests.origin() or manifests.begin(starts(pipeline.source))
    engine = Engine(plan, pipeline.name, manifests, origin)
    if hook is not None:
        engine.hook = hook
    if spark is not None:
        engine.run_tasks = on_spark(spark)
    engine.recover()
    return engine


def run_pipeline(
    spark: SparkSession,
    pipeline: Pipeline,
    pace: Pace,
    told: Told = lambda _: None,
    hook: Hook | None = None,
) -> Engine:
    """Run a pipeline until it has read all (`is_available_now`), or is stopped.

    Raises:
        Error: what went wrong in a batch; the next run goes on from there.
    """
    engine = open_engine(pipeline, hook, spark)
    failures: list[BaseException] = []
    upkeep = Beside(pipeline)

    def take(rows: DataFrame, number: int, checkpoint: Path) -> None:
        try:
            if engine.plan.may_grow:
                engine.plan = Plan.of(pipeline, engine.plan)
            ends = planned_ends(pipeline.source, engine.ends(), checkpoint, number)
            metrics = engine.run(routed(engine.plan, rows), ends)
        except BaseException as error:
            failures.append(error)  # Spark would only pass its text on.
            raise
        publish(pipeline.source, engine.ends())
        if metrics is not None:
            metrics.lag = lag(pipeline.source, engine.ends())
            told(metrics)
            upkeep.after(metrics.batch)

    for attempt in range(_STARTS):
        try:
            _until_end(spark, pipeline, engine.ends(), pace, take)
            break
        except Exception as error:
            if failures and isinstance(failures[0], Error):
                raise failures[0] from error
            if failures or _SLOW not in str(error) or attempt == _STARTS - 1:
                raise
        finally:
            upkeep.end()
    engine.finish()
    return engine


def _until_end(
    spark: SparkSession,
    pipeline: Pipeline,
    ends: Offsets,
    pace: Pace,
    take: Callable[[DataFrame, int, Path], None],
) -> None:
    checkpoint = Path(tempfile.mkdtemp(prefix="rookery-pipeline-"))
    try:
        query = _query(spark, pipeline, ends, pace, take, checkpoint)
        try:
            query.awaitTermination()
        finally:
            query.stop()
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)


def read_options(source: Source, ends: Offsets) -> dict[str, str]:
    """Return the options with which the source goes on from these offsets."""
    options = source.place_options()
    options["subscribe"] = ",".join(source.topics)
    options["includeHeaders"] = "true"
    options["startingOffsets"] = json.dumps(complete(source, ends), sort_keys=True)
    options["onDataLoss"] = source.on_data_loss
    if source.min_partitions:
        options["minPartitions"] = str(source.min_partitions)
    return options


def _query(
    spark: SparkSession,
    pipeline: Pipeline,
    ends: Offsets,
    pace: Pace,
    take: Callable[[DataFrame, int, Path], None],
    checkpoint: Path,
) -> Any:
    options = read_options(pipeline.source, ends)
    options["maxOffsetsPerTrigger"] = str(pipeline.source.max_offsets_per_trigger)
    rows = filled(spark.readStream.format("rookery").options(**options).load())
    writer = rows.writeStream.queryName(f"rookery-{pipeline.name}")
    writer = writer.foreachBatch(lambda batch, number: take(batch, number, checkpoint))
    writer = writer.option("checkpointLocation", checkpoint.as_uri())
    if pace.is_available_now:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{pace.interval_ms} milliseconds").start()
