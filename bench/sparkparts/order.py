"""All partitions in the order of time, against a sort by Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparkparts.scene import SLOTS, Scene, drain, timed
from sparkparts.topics import both

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BOUNDS: Final = (2.5, 4.0)
_ORDER: Final = ("timestamp", "partition", "offset")


def order(scene: Scene) -> None:
    """Compare `orderBy=timestamp` with a range sort of the same topic, and of Parquet."""
    pair = both(scene, "none")
    parquet = scene.spark.read.parquet(pair.parquet)
    count = pair.log.read(scene.spark, orderBy="timestamp").count()
    if count != scene.rows:
        raise RuntimeError(f"{count} of {scene.rows} rows came")
    ours, same, other = scene.best(
        lambda _: timed(lambda: drain(pair.log.read(scene.spark, orderBy="timestamp"))),
        lambda _: timed(lambda: drain(_sorted(pair.log.read(scene.spark)))),
        lambda _: timed(lambda: drain(_sorted(parquet))),
    )
    what = "by time / range sort of"
    scene.add_rate("order", f"{what} the same topic", (ours, same), _BOUNDS)
    scene.add_rate("order", f"{what} parquet", (ours, other), _BOUNDS)


def _sorted(frame: DataFrame) -> DataFrame:
    """Return rows as an ORDER BY sorts them, in steps that no optimizer can leave out."""
    return frame.repartitionByRange(SLOTS, *_ORDER).sortWithinPartitions(*_ORDER)
