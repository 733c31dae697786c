"""A Kafka's directory read in place, without any broker: by ranges, and with Spark."""

from __future__ import annotations

import shutil
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rookery.direct.blockinglog import BlockingLog
from rookery.direct.offsets import Position
from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError
from rookery.testing.kafkadir import MadeDirectory
from rookery.testing.kafkasight import T0, ClusterSight
from tests.direct.logs import planned, read
from tests.logdir.conftest import Copy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def digest(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_every_topic_reads_as_clients_saw_it(seen: ClusterSight) -> None:
    before = digest(seen.folder)
    place = ClusterAddress(log_dir=str(seen.folder))

    with BlockingLog(place) as log:
        assert {topic.name for topic in log.log.state.topics} == set(seen.topics)
        for name, topic in seen.topics.items():
            rows = read(place, planned(log, name))
            wanted = [
                (number, record.offset, record.timestamp, record.key, record.value)
                for number, partition in topic.partitions.items()
                for record in partition.records
                if record.offset in set(partition.committed)
            ]
            listed = [
                (row.partition, row.offset, row.timestamp, row.key, row.value) for row in rows
            ]
            assert sorted(listed, key=lambda row: row[:2]) == wanted, name
    assert digest(seen.folder) == before


def test_records_are_found_by_time(made: MadeDirectory) -> None:
    place = ClusterAddress(log_dir=str(made.stopped.folder))
    with BlockingLog(place) as log:
        [range_] = planned(log, "large", start=Position(time_ms=T0 + 15_000))
    assert range_.begin == 1500


def test_directory_is_refreshed_and_read_only(made: MadeDirectory, copied: Copy) -> None:
    folder = copied(made.stopped)
    with BlockingLog(ClusterAddress(log_dir=str(folder))) as log:
        with pytest.raises(ConfigError, match="read only"):
            log.run(log.log.numbers())
        shutil.rmtree(folder / "odd-0")
        log.run(log.log.barrier())
        assert log.log.state.topics.by_name["odd"].partitions[0].next_offset == 0


@pytest.mark.parametrize(
    "place",
    [
        ClusterAddress(log_dir="/nowhere"),
        ClusterAddress(log_dir="/tmp", store="s3://bucket"),  # noqa: S108 (any folder that is there)
        ClusterAddress(log_dir="/tmp", layout="kafscale"),  # noqa: S108
    ],
)
def test_contradicting_options_are_refused(place: ClusterAddress) -> None:
    with pytest.raises(ConfigError, match="logDir"):
        place.check()


def test_spark_reads_a_kafka_directory(made: MadeDirectory, spark: SparkSession) -> None:
    frame = (
        spark.read.format("rookery")
        .option("logDir", str(made.stopped.folder))
        .option("subscribe", "large,tx")
        .option("startingOffsets", "earliest")
        .load()
    )

    counts = {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()}

    topics = made.stopped.topics
    assert counts == {
        name: sum(len(partition.committed) for partition in topics[name].partitions.values())
        for name in ("large", "tx")
    }
