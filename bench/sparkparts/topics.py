"""Topics to measure with, in logs whose brokers are stopped, and the same rows as Parquet."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka.admin import AdminClient, NewTopic

from rookery.broker.settings import BrokerSettings
from rookery.direct.blockinglog import BlockingLog
from rookery.direct.place import ClusterAddress
from rookery.jobs import JobRun, merge
from rookery.log.settings import RewriteSettings
from rookery.testing.servedbroker import ServedBroker
from sparkparts.scene import Scene

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS: Final = 8
HOUR_MS: Final = 3_600_000
START_MS: Final = int(time.time() * 1000) - HOUR_MS
"""The time of the first row; the last one is an hour later."""
_TASKS: Final = 16
_WAIT_SECONDS: Final = 60


@dataclass(frozen=True)
class Log:
    """A cluster's log in a store."""

    store: str
    name: str = ""
    """What the cluster is called in the scene's rookery.toml, if the store's address is secret."""

    @property
    def place(self) -> ClusterAddress:
        """Its place."""
        return ClusterAddress(store=self.store)

    def read(self, spark: SparkSession, topic: str = "t", **options: Any) -> DataFrame:
        """Return a topic."""
        given = {name: str(value) for name, value in options.items()}
        reader = spark.read.format("rookery").options(**self._where, subscribe=topic, **given)
        return reader.load()

    def write(self, frame: DataFrame, topic: str = "t", **options: Any) -> None:
        """Add rows to a topic."""
        given = {name: str(value) for name, value in options.items()}
        writer = frame.write.format("rookery").options(**self._where, topic=topic, **given)
        writer.mode("append").save()

    @property
    def _where(self) -> dict[str, str]:
        return {"cluster": self.name} if self.name else {"store": self.store}

    def kinds(self, topic: str = "t") -> tuple[int, int]:
        """Return how many rows of the log a topic has, and how many of them are segments."""
        with BlockingLog(self.place, "bench") as log:
            rows = [
                partition.row(index)
                for partition in log.log.state.topics.by_name[topic].partitions
                for index in range(len(partition.base_offsets))
            ]
        return len(rows), sum(row.is_segment for row in rows)


@dataclass(frozen=True)
class Both:
    """The same rows in a topic and as Parquet, compressed alike."""

    log: Log
    parquet: str


def make_log(folder: Path, *topics: NewTopic, store: str = "") -> Log:
    """Make a cluster with these topics, by a broker that is stopped again."""
    url = store or f"file://{folder / 'store'}"
    settings = BrokerSettings(store=url, durability="os", upkeep_interval_ms=HOUR_MS)
    with ServedBroker(folder / "broker", settings) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for made in admin.create_topics(list(topics)).values():
            made.result(_WAIT_SECONDS)
    return Log(url)


def rows(scene: Scene, keys: int = 0) -> DataFrame:
    """Return rows in the order of time: 8 bytes of key, 100 of value.

    Values are random hexadecimal digits: half of it is entropy, and no codec finds repetitions.

    Args:
        scene: how many, and where.
        keys: how many different ones there are, about; 0: each row has its own.
    """
    key = f"pmod(xxhash64(id), {keys})" if keys else "id"
    return scene.spark.range(0, scene.rows, 1, _TASKS).selectExpr(
        f"cast(lpad(cast({key} as string), 8, '0') as binary) as key",
        "cast(substring(sha2(cast(id as string), 512), 1, 100) as binary) as value",
        f"cast(id % {PARTITIONS} as int) as partition",
        f"timestamp_millis({START_MS} + id * {HOUR_MS} div {scene.rows}) as timestamp",
    )


def into_segments(scene: Scene, log: Log) -> None:
    """Have all that was written become segments, as it does with time."""
    settings = RewriteSettings(segment_min_bytes=1)
    report = merge(scene.spark, log.place, ["t"], JobRun(proof=False), settings)
    if not report.is_right:
        raise RuntimeError(f"merge: {report.problems}")
    count, segments = log.kinds()
    scene.figures.say(f"  {segments} of the topic's {count} parts are segments")


def both(scene: Scene, codec: str) -> Both:
    """Return rows compressed with a codec, made when they are first asked for."""
    folder = scene.folder / codec
    pair = Both(Log(f"file://{folder / 'store'}"), str(folder / "parquet"))
    if folder.exists():
        return pair
    scene.figures.say(f"  making {scene.rows:,} rows, {codec}")
    log = make_log(folder, NewTopic("t", PARTITIONS, 1))
    log.write(rows(scene), compression=codec)
    into_segments(scene, log)
    copy = log.read(scene.spark).write.option("compression", codec)
    copy.parquet(pair.parquet)
    sizes = [_size(folder / name) / 1e6 for name in ("store", "parquet")]
    scene.figures.say(f"  {sizes[0]:.0f} MB in the store, {sizes[1]:.0f} MB of Parquet")
    return pair


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
