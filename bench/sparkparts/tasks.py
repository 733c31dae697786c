"""What a task in Python costs that has nearly nothing to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from confluent_kafka.admin import NewTopic
from objectparts.figures import Figure

from sparkparts.scene import Scene, drain, timed
from sparkparts.topics import make_log

_TASKS: Final = 256


def tasks(scene: Scene) -> None:
    """Read a record in each of many tasks; and the same with tasks that do nothing at all."""
    log = make_log(scene.folder / "tasks", NewTopic("t", _TASKS, 1))
    log.write(
        scene.spark.range(0, _TASKS, 1, 1).selectExpr(
            "cast('value' as binary) as value", "cast(id as int) as partition"
        )
    )
    count = log.read(scene.spark, minPartitions=_TASKS).rdd.getNumPartitions()
    idle = scene.spark.range(0, _TASKS, 1, _TASKS)

    # Nested, so that Spark sends it to its workers, which do not know this folder.
    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    own, bare = scene.best(
        lambda _: timed(lambda: drain(log.read(scene.spark, minPartitions=_TASKS))),
        lambda _: timed(lambda: drain(idle.mapInArrow(same, "id long"))),
    )
    _add(scene, f"a task of the source that reads one record ({count} tasks)", own / count)
    _add(scene, f"a task of mapInArrow ({_TASKS} tasks)", bare / _TASKS)
    scene.drop("tasks")


def _add(scene: Scene, what: str, seconds: float) -> None:
    row = Figure("tasks", f"{what}, 2 slots", seconds * 1e3, "ms", None, 12, 8, is_less_better=True)
    scene.figures.add(row)
