"""Keeping the last record of each key: the job, against a groupBy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confluent_kafka.admin import NewTopic

from rookery.jobs import JobRun, compact
from sparkparts.scene import Scene, drain, timed
from sparkparts.topics import PARTITIONS, Log, make_log, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PERCENTS: Final = (10, 100)
_BOUNDS: Final = (3.0, 5.0)


def compaction(scene: Scene) -> None:
    """Compare the job, which writes and commits, with what Spark itself would do."""
    for percent in _PERCENTS:
        _Race(scene, percent).run()
        scene.drop(f"compaction-{percent}")


class _Race:
    """The job and its peers at a part of the keys being distinct."""

    def __init__(self, scene: Scene, percent: int) -> None:
        self._scene = scene
        self._percent = percent
        # A place of its own: Spark's workers keep the logs open that they have written to.
        self._folder = scene.folder / f"compaction-{percent}"
        self._log = self._topics()
        self._parquet = str(self._folder / "parquet")

    def run(self) -> None:
        scene = self._scene
        self._fill("peer")
        self._log.read(scene.spark, "peer").write.parquet(self._parquet)
        kept = _grouped(scene.spark.read.parquet(self._parquet)).count()
        scene.figures.say(f"  {kept:,} different keys in {scene.rows:,} rows")
        ours, same, bare = scene.best(
            lambda number: self._compacted(f"ours-{number}", kept), self._rewritten, self._grouped
        )
        what = f"{self._percent} % distinct keys, written and committed / groupBy"
        like = f"{what} of the topic into a topic"
        scene.add_rate("compaction", like, (ours, same), _BOUNDS)
        scene.add_rate("compaction", f"{what} of parquet, not written", (ours, bare), _BOUNDS)

    def _topics(self) -> Log:
        names = ["peer", *(f"ours-{number}" for number in range(self._scene.rounds + 1))]
        config = {"cleanup.policy": "compact"}
        topics = [NewTopic(name, PARTITIONS, 1, config=config) for name in names]
        return make_log(self._folder, *topics)

    def _fill(self, topic: str) -> None:
        keys = self._scene.rows * self._percent // 100 if self._percent < 100 else 0
        self._log.write(rows(self._scene, keys).select("key", "value", "timestamp"), topic)

    def _compacted(self, topic: str, kept: int) -> float:
        self._fill(topic)
        spark, place = self._scene.spark, self._log.place
        taken = timed(lambda: compact(spark, place, [topic], JobRun(proof=False)))
        left = self._log.read(spark, topic).count()
        if left != kept:
            raise RuntimeError(f"{topic}: {left} records are left, and there are {kept} keys")
        return taken

    def _rewritten(self, number: int) -> float:
        latest = _grouped(self._log.read(self._scene.spark, "peer"))
        name = f"grouped-{number}"
        return timed(lambda: self._log.write(latest, name, createTopic=PARTITIONS))

    def _grouped(self, _: int) -> float:
        latest = _grouped(self._scene.spark.read.parquet(self._parquet))
        return timed(lambda: drain(latest))


def _grouped(frame: DataFrame) -> DataFrame:
    """Return the last record of each key; all of a key are in one partition."""
    from pyspark.sql import functions  # noqa: PLC0415 (it takes a second)

    last = functions.max_by(functions.struct("value", "timestamp"), "offset").alias("last")
    return frame.groupBy("key").agg(last).select("key", "last.value", "last.timestamp")
