"""Copies: into another cluster of ours, and into a real Kafka by transactions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rookery import jobs
from rookery.client.client import Client
from rookery.client.fetch import FetchSettings, Isolation
from rookery.client.produce.transactions import TransactionalWriter
from rookery.client.settings import ClientSettings
from rookery.direct.layout import PackSettings
from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError
from rookery.jobs import CopyRequest, JobRun
from rookery.jobs.move.kafkaprogress import read_map
from rookery.model.partition import TopicPartition
from rookery.records.recordcodec import Record
from rookery.testing.kafka import KafkaServer
from tests.direct.sinking import make_cluster, rows
from tests.jobs.test_moving import check_map
from tests.jobs.world import check_clean, contents, create, fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKING = PackSettings(object_bytes=64 * 1024, batch_bytes=4096)
_COMMITTED = FetchSettings(isolation=Isolation.READ_COMMITTED)


def test_topic_is_copied_into_another_cluster(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    target = asyncio.run(make_cluster(tmp_path / "other"))
    create(place, "a", 2, retention_ms="-1")
    create(place, "b", 3)
    for topic in ("a", "b"):
        fill(place, topic, [rows(200, start) for start in range(0, 2_000, 200)])
    copying = CopyRequest(("a", "b"), "eu.", "", str(tmp_path / "map"), _PACKING, 30_000)
    half = jobs.copy(spark, place, target, copying, JobRun(dry_run=True)).plan.bytes // 2

    first = jobs.copy(spark, place, target, copying, JobRun(max_bytes=half))
    fill(place, "a", [rows(100, 2_000)])
    second = jobs.copy(spark, place, target, copying)

    assert first.is_right
    assert second.is_right, second.problems
    assert 0 < first.done_bytes <= half
    for topic in ("a", "b"):
        assert contents(target, f"eu.{topic}") == contents(place, topic)
    maps = {topic: contents(place, topic) for topic in ("a", "b")}
    copies = {f"eu.{topic}": contents(target, f"eu.{topic}") for topic in ("a", "b")}
    check_map(tmp_path / "map", maps, copies)
    check_clean(target)
    with pytest.raises(ConfigError, match="onto itself"):
        jobs.copy(spark, place, place, CopyRequest(("a",)))


def test_large_records_are_copied(
    spark: SparkSession, place: ClusterAddress, tmp_path: Path
) -> None:
    target = asyncio.run(make_cluster(tmp_path / "other"))
    create(place, "large", 1, max_message_bytes="30000000")
    large = [b"a", bytes(1_040_000), b"b", bytes(9_000_000), b"c"]
    fill(place, "large", [rows(5, value=large)])

    report = jobs.copy(spark, place, target, CopyRequest(("large",)))
    fill(place, "large", [rows(1, value=[bytes(17 << 20)])])

    assert report.is_right, report.problems
    assert [value for *_, value in contents(target, "large")] == large
    with pytest.raises(
        ConfigError, match=r"jobs take no record of more than 16777216 bytes.*set 5"
    ):
        jobs.copy(spark, place, target, CopyRequest(("large",)))


@pytest.mark.parametrize("is_exact", [True, False])
def test_topic_is_copied_into_kafka(
    spark: SparkSession, place: ClusterAddress, kafka: KafkaServer, is_exact: bool
) -> None:
    create(place, "t", 2)
    fill(place, "t", [rows(500, start) for start in range(0, 4_000, 500)])
    settings = ClientSettings(bootstrap=kafka.bootstrap)
    prefix = "exact." if is_exact else "loose."
    copying = CopyRequest(("t",), prefix, f"copy-{is_exact}", slice_bytes=20_000)

    first = jobs.copy_to_kafka(spark, place, settings, copying, is_exact=is_exact)
    fill(place, "t", [rows(100, 4_000)])
    second = jobs.copy_to_kafka(spark, place, settings, copying, is_exact=is_exact)
    third = jobs.copy_to_kafka(spark, place, settings, copying, is_exact=is_exact)

    assert first.is_right, first.problems
    assert second.is_right, second.problems
    assert first.slices > 2
    assert (first.facts["rows"], second.facts["rows"], third.facts["rows"]) == (4_000, 100, 0)
    assert first.before == first.after
    expected = contents(place, "t")
    for partition in range(2):
        records = asyncio.run(_read(kafka.bootstrap, f"{prefix}t", partition))
        mine = [(key, value) for index, _, key, value in expected if index == partition]
        assert [(record.key, record.value) for record in records] == mine
        runs = asyncio.run(_map(kafka.bootstrap, f"rookery-copy-{is_exact}-t", partition))
        where = {run.source + n: run.offset + n for run in runs for n in range(run.records)}
        assert [where[offset] for index, offset, _, _ in expected if index == partition] == [
            record.offset for record in records
        ]


def test_open_transaction_of_a_killed_copy_is_never_visible(
    spark: SparkSession, place: ClusterAddress, kafka: KafkaServer
) -> None:
    create(place, "t", 1)
    fill(place, "t", [rows(1_000)])
    settings = ClientSettings(bootstrap=kafka.bootstrap)
    copying = CopyRequest(("t",), "killed.", "copy-killed", slice_bytes=20_000)
    asyncio.run(_leave_open(kafka.bootstrap))

    report = jobs.copy_to_kafka(spark, place, settings, copying)

    assert report.is_right, report.problems
    records = asyncio.run(_read(kafka.bootstrap, "killed.t", 0))
    assert [record.value for record in records] == [value for *_, value in contents(place, "t")]


async def _leave_open(bootstrap: str) -> None:
    """Do as a task does that is killed between its records and the end of its transaction."""
    async with Client(bootstrap) as client:
        await client.create_topic("killed.t", 1)
        writer = TransactionalWriter(client, "rookery-copy-killed-t-0")
        await writer.start()
        place = TopicPartition("killed.t", 0)
        await writer.begin([place])
        await writer.write(place, rows(10))


async def _read(bootstrap: str, topic: str, partition: int) -> list[Record]:
    async with Client(bootstrap) as client:
        return [record async for record in client.read(topic, partition, settings=_COMMITTED)]


async def _map(bootstrap: str, topic: str, partition: int) -> list:  # type: ignore[type-arg] # runs
    async with Client(bootstrap) as client:
        return await read_map(client, TopicPartition(topic, partition))
