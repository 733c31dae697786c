"""Writing a topic, against writing Parquet, from the same Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confluent_kafka.admin import NewTopic

from sparkparts.scene import Scene, timed
from sparkparts.topics import PARTITIONS, both, make_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_CODECS: Final = ("none", "zstd")


def sink(scene: Scene) -> None:
    """Copy rows into a topic, by the hash of their keys, and into Parquet files."""
    rows = scene.spark.read.parquet(both(scene, "none").parquet).select("key", "value", "timestamp")
    for codec in _CODECS:
        _race(scene, rows, codec)
        scene.drop(f"sink-{codec}")
        scene.drop("copy")


def _race(scene: Scene, rows: DataFrame, codec: str) -> None:
    # A place of its own: Spark's workers keep the logs open that they have written to.
    log = make_log(scene.folder / f"sink-{codec}", NewTopic("unused", 1, 1))
    copied = str(scene.folder / "copy")

    def write(number: int) -> float:
        name = f"round-{number}"
        return timed(lambda: log.write(rows, name, compression=codec, createTopic=PARTITIONS))

    def copy(_: int) -> float:
        writer = rows.write.mode("overwrite").option("compression", codec)
        return timed(lambda: writer.parquet(copied))

    ours, theirs = scene.best(write, copy)
    written = log.read(scene.spark, f"round-{scene.rounds - 1}").count()
    if written != scene.rows:
        raise RuntimeError(f"{written} of {scene.rows} rows were written")
    what = f"parquet to topic, {codec} / parquet to parquet"
    scene.add_rate("sink", what, (ours, theirs), (0.5, 0.8))
