"""Topics that are deleted and created again between two runs of a job are new topics."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rookery import jobs
from rookery.client.client import Client
from rookery.client.settings import ClientSettings
from rookery.cluster.events.topicevents import PartitionsAdded, TopicCreated, TopicDeleted
from rookery.direct.layout import PackSettings
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError, Conflict
from rookery.jobs import CopyRequest, FileImport, FillTarget, ImportFiles, JobReport
from rookery.testing.kafka import KafkaServer
from tests.direct.sinking import make_cluster, rows
from tests.jobs.test_copy import _map, _read
from tests.jobs.test_moving import check_map
from tests.jobs.world import contents, create, fill, with_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKING = PackSettings(object_bytes=64 * 1024, batch_bytes=4096)


def delete(place: ClusterAddress, topic: str) -> None:
    async def work(log: DirectLog) -> None:
        state = await log.barrier()
        await log.propose([TopicDeleted(topic_id=state.topics.by_name[topic].id)])

    with_log(place, work)


def replace(place: ClusterAddress, topic: str, partitions: int) -> None:
    """Delete a topic, and create another of its name."""
    delete(place, topic)

    async def work(log: DirectLog) -> None:
        await log.propose(
            [
                TopicCreated(
                    topic_id=b"new " + topic.encode().ljust(12), name=topic, partitions=partitions,
                    replication_factor=1, configs=[],
                )
            ]
        )  # fmt: skip

    with_log(place, work)


def grow(place: ClusterAddress, topic: str, partitions: int) -> None:
    async def work(log: DirectLog) -> None:
        state = await log.barrier()
        stored = state.topics.by_name[topic]
        await log.propose([PartitionsAdded(topic_id=stored.id, partitions=partitions)])

    with_log(place, work)


def values(place: ClusterAddress, topic: str) -> list[bytes | None]:
    return sorted((value for *_, value in contents(place, topic)), key=str)


def _jobs(
    spark: SparkSession, place: ClusterAddress, target: ClusterAddress
) -> dict[str, Callable[[], JobReport]]:
    return {
        "u": lambda: jobs.repartition(spark, place, "t", FillTarget("u", 3, "", _PACKING)),
        "in-order": lambda: jobs.replay(
            spark, place, ["t"], FillTarget("in-order", 1, "", _PACKING)
        ),
        "copied.t": lambda: jobs.copy(spark, place, target, CopyRequest(("t",), "copied.")),
    }


def test_recreated_source_is_refused(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    target = asyncio.run(make_cluster(tmp_path / "other"))
    create(place, "t", 2)
    fill(place, "t", [rows(200)])
    todo = _jobs(spark, place, target)
    for run in todo.values():
        assert run().is_right
    replace(place, "t", 2)
    fill(place, "t", [rows(500, 1_000)])

    for run in todo.values():
        with pytest.raises(Conflict, match="topic t was deleted and created again"):
            run()
    fresh = jobs.repartition(spark, place, "t", FillTarget("v", 3, "", _PACKING))
    assert fresh.facts["rows"] == 500


def test_deleted_target_is_filled_again(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    target = asyncio.run(make_cluster(tmp_path / "other"))
    create(place, "t", 2)
    fill(place, "t", [rows(200)])
    todo = _jobs(spark, place, target)
    for topic, run in todo.items():
        where = target if topic.startswith("copied") else place
        assert run().is_right
        delete(where, topic)
        again = run()
        assert again.is_right, again.problems
        assert again.facts["rows"] == 200
        assert values(where, topic) == values(place, "t")
        assert run().slices == 0, "it is the same topic as before"


def test_source_restored_from_an_old_copy_is_refused(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    target = asyncio.run(make_cluster(tmp_path / "other"))
    create(place, "t", 1)
    fill(place, "t", [rows(200)])
    shutil.copytree(tmp_path / "cluster", tmp_path / "backup")
    fill(place, "t", [rows(300, 200)])
    assert jobs.copy(spark, place, target, CopyRequest(("t",))).facts["rows"] == 500
    shutil.rmtree(tmp_path / "cluster")
    shutil.copytree(tmp_path / "backup", tmp_path / "cluster")
    fill(place, "t", [rows(100, 1_000)])

    with pytest.raises(Conflict, match="t-0 ends at offset 300, and was read to 500"):
        jobs.copy(spark, place, target, CopyRequest(("t",)))


def test_files_are_imported_again_into_a_recreated_topic(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    (tmp_path / "files").mkdir()
    pq.write_table(pa.table({"value": [b"a", b"b"]}), tmp_path / "files" / "1.parquet")
    create(place, "t", 2)

    def run() -> JobReport:
        return jobs.import_files(
            spark, place, ImportFiles(str(tmp_path / "files")), FileImport("t")
        )

    assert run().facts["rows"] == 2
    assert run().slices == 0
    replace(place, "t", 3)
    assert run().facts["rows"] == 2
    assert values(place, "t") == [b"a", b"b"]


def test_map_of_an_earlier_target_is_not_extended(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    create(place, "t", 2)
    fill(place, "t", [rows(200)])
    old = FillTarget("u", 3, str(tmp_path / "map"), _PACKING)
    jobs.repartition(spark, place, "t", old)
    delete(place, "u")

    with pytest.raises(ConfigError, match="name another folder"):
        jobs.repartition(spark, place, "t", old)
    new = FillTarget("u", 3, str(tmp_path / "map-2"), _PACKING)
    assert jobs.repartition(spark, place, "t", new).facts["rows"] == 200
    check_map(tmp_path / "map-2", {"t": contents(place, "t")}, {"u": contents(place, "u")})


def test_copies_in_kafka_record_their_topic_ids(
    spark: SparkSession, place: ClusterAddress, kafka: KafkaServer
) -> None:
    settings = ClientSettings(bootstrap=kafka.bootstrap)
    copying = CopyRequest(("a", "b"), "known.", "copy-known", slice_bytes=20_000)
    for topic in ("a", "b"):
        create(place, topic, 2)
        fill(place, topic, [rows(200)])

    def run() -> JobReport:
        return jobs.copy_to_kafka(spark, place, settings, copying)

    def check() -> None:
        for topic in ("a", "b"):
            there = contents(place, topic)
            for partition in {index for index, *_ in there}:
                mine = [(key, value) for index, _, key, value in there if index == partition]
                records = asyncio.run(_read(kafka.bootstrap, f"known.{topic}", partition))
                assert [(record.key, record.value) for record in records] == mine
                runs = asyncio.run(_map(kafka.bootstrap, f"rookery-copy-known-{topic}", partition))
                assert sum(run.records for run in runs) == len(mine)

    assert run().facts["rows"] == 400
    # The second topic's partitions are not taken for those that the first has got.
    grow(place, "a", 3)
    for topic in ("a", "b"):
        fill(place, topic, [rows(300, 1_000)])
    assert run().facts["rows"] == 600
    check()
    asyncio.run(_delete(kafka.bootstrap, "known.b"))
    assert run().facts["rows"] == 500
    check()
    replace(place, "a", 3)
    fill(place, "a", [rows(900, 5_000)])
    with pytest.raises(Conflict, match="topic a was deleted and created again"):
        run()


async def _delete(bootstrap: str, topic: str) -> None:
    async with Client(bootstrap) as client:
        await client.admin.delete_topics([topic])
