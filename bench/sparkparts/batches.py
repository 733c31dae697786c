"""How long a micro-batch takes that has few rows, into a sink that keeps nothing."""

from __future__ import annotations

from statistics import median
from typing import Final, NamedTuple

from confluent_kafka.admin import NewTopic
from objectparts.figures import Figure

from sparkparts.scene import Scene
from sparkparts.topics import Log, make_log

_EACH: Final = 10
"""Rows of each partition in a batch."""
_WARM: Final = 10
"""The first batches do not count."""
_WAIT_SECONDS: Final = 600
_BOUNDS: Final = {2: (80, 55), 8: (110, 70)}
"""Floor and goal of a batch's milliseconds, by the number of partitions."""
_STOCK_MS: Final = 160
# All else is as `session` sets it: not every user wants this one.
_STOCK: Final = {"spark.python.daemon.module": "pyspark.daemon"}


class _Case(NamedTuple):
    """One query."""

    partitions: int
    tasks: int
    floor: float
    goal: float | None = None
    note: str = ""


def batches(scene: Scene) -> None:
    """Measure with the settings of `session`, then at 8 partitions with Spark's own daemon."""
    count = 20 if scene.is_quick else 80
    logs = {partitions: _filled(scene, partitions, count) for partitions in _BOUNDS}
    for partitions, bounds in _BOUNDS.items():
        # The planner takes one task for so few rows; a task for each partition is what others do.
        for tasks in (1, partitions):
            _measure(scene, logs[partitions], _Case(partitions, tasks, *bounds))
    scene.restart(_STOCK)
    _measure(scene, logs[8], _Case(8, 8, _STOCK_MS, note=", Spark's own daemon"))
    scene.stop()
    for partitions in logs:
        scene.drop(f"batches-{partitions}")


def _filled(scene: Scene, partitions: int, count: int) -> Log:
    log = make_log(scene.folder / f"batches-{partitions}", NewTopic("t", partitions, 1))
    rows = scene.spark.range(0, partitions * _EACH * count, 1, 1).selectExpr(
        "cast(repeat('x', 100) as binary) as value", f"cast(id % {partitions} as int) as partition"
    )
    log.write(rows)
    return log


def _measure(scene: Scene, log: Log, case: _Case) -> None:
    rows = case.partitions * _EACH
    checkpoint = scene.folder / f"checkpoint-{len(scene.figures.rows)}"
    reader = scene.spark.readStream.format("rookery").options(
        store=log.store,
        subscribe="t",
        startingOffsets="earliest",
        minPartitions=str(case.tasks),
        maxOffsetsPerTrigger=str(rows),
    )
    writer = reader.load().writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    if not query.awaitTermination(_WAIT_SECONDS):
        raise RuntimeError(f"the query does not end: {query.status}")
    taken = [
        progress["durationMs"]["triggerExecution"]
        for progress in query.recentProgress
        if progress["numInputRows"] == rows
    ][_WARM:]
    if not taken:
        raise RuntimeError(f"there were only {len(query.recentProgress)} batches")
    what = f"p50, {case.partitions} partitions, minPartitions={case.tasks}{case.note}"
    scene.figures.say(f"  {len(taken)} batches of {rows} rows, {min(taken)} to {max(taken)} ms")
    bounds = case.floor, case.goal
    row = Figure("batches", what, median(taken), "ms", None, *bounds, is_less_better=True)
    scene.figures.add(row)
