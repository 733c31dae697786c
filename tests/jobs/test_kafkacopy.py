"""Copies into a Kafka: large records, many gaps, small budgets, settings, and their owner."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from rookery import jobs
from rookery.cli.main import main
from rookery.client.admin import NewTopic
from rookery.client.client import Client
from rookery.client.configs import ResourceType
from rookery.client.fetch import FetchSettings, Isolation
from rookery.client.produce.transactions import TransactionalWriter
from rookery.client.settings import ClientSettings
from rookery.direct.layout import PackSettings
from rookery.direct.place import ClusterAddress
from rookery.errors import Conflict, Error
from rookery.jobs import CopyRequest, JobRun
from rookery.jobs.move.kafkaprogress import CopiedRun, CopyPosition, progress_rows, read_map
from rookery.jobs.move.kafkatask import cut, spans
from rookery.model.partition import TopicPartition
from rookery.testing.broker import BrokerProcess
from rookery.testing.kafka import KafkaServer
from tests.direct.sinking import rows, write
from tests.jobs.killing import run_job
from tests.jobs.world import contents, create, fill, with_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COMMITTED = FetchSettings(isolation=Isolation.READ_COMMITTED)


def _settings(kafka: KafkaServer) -> ClientSettings:
    return ClientSettings(bootstrap=kafka.bootstrap)


def _values(kafka: KafkaServer, topic: str, partition: int = 0) -> list[bytes | None]:
    async def read() -> list[bytes | None]:
        async with Client(kafka.bootstrap) as client:
            records = client.read(topic, partition, settings=_COMMITTED)
            return [record.value async for record in records]

    return asyncio.run(read())


# Large records.


def test_large_records_are_copied(
    spark: SparkSession, place: ClusterAddress, kafka: KafkaServer
) -> None:
    create(place, "large", 1)
    large = [b"a", bytes(1_040_000), b"b", bytes(5_000_000), b"c"]
    batch = rows(5, value=large)
    with_log(place, lambda log: write(log, batch, topic="large", compression="zstd"))
    plain = CopyRequest(("large",), "plain.", "plain")
    packed = CopyRequest(("large",), "packed.", "packed", packing=PackSettings(compression="zstd"))

    where = "topic large partition 0: the record at offset 3 is too large for topic plain.large"
    with pytest.raises(Error, match=f"{where} there: .*; raise its max.message.bytes"):
        jobs.copy_to_kafka(spark, place, _settings(kafka), plain)
    report = jobs.copy_to_kafka(spark, place, _settings(kafka), packed)

    assert report.is_right, report.problems
    assert _values(kafka, "packed.large") == large
    assert _values(kafka, "plain.large") == []


# The map.


def test_many_gaps_are_recorded_in_several_records(kafka: KafkaServer) -> None:
    runs = [CopiedRun(3 * n, 2 * n, 2) for n in range(111_848)]  # every third offset is gone
    noted = progress_rows(CopyPosition(3 * 111_848, 223_696, target="id"), runs)

    async def write_and_read() -> list[CopiedRun]:
        async with Client(kafka.bootstrap) as client:
            new = NewTopic(name="gaps", partitions=1, configs={"max.message.bytes": "300000"})
            await client.admin.create_topics([new])
            place = TopicPartition("gaps", 0)
            writer = TransactionalWriter(client, "gaps")
            await writer.start()
            await writer.begin([place])
            await writer.write(place, noted)
            await writer.commit()
            while not (runs := await read_map(client, place)):
                pass  # a commit takes a while to show
            return runs

    assert all(len(value or b"") < 250_000 for value in noted.column("value").to_pylist())
    assert len(set(noted.column("key").to_pylist())) == noted.num_rows
    assert asyncio.run(write_and_read()) == runs


def test_adjacent_runs_are_read_back_together() -> None:
    assert spans([CopiedRun(0, 5, 2), CopiedRun(9, 7, 1), CopiedRun(10, 20, 5)]) == [
        (5, 7),
        (20, 24),
    ]
    assert spans([]) == []


# The budget.


def test_slices_respect_their_size_limit() -> None:
    batch = rows(6, value=[bytes(size) for size in (10, 10, 5_000, 10, 10, 10)])

    tables = list(cut(iter([batch, batch.slice(0, 0), batch.slice(3)]), 500))

    assert [table.num_rows for table in tables] == [2, 1, 6]
    assert pa.concat_tables(tables).num_rows == 9
    assert all(table.nbytes <= 500 for table in tables if table.num_rows > 1)


def test_small_budget_makes_progress(
    spark: SparkSession, place: ClusterAddress, kafka: KafkaServer
) -> None:
    create(place, "b", 6)
    fill(place, "b", [rows(600, start) for start in range(0, 3_000, 600)])
    copying = CopyRequest(("b",), "small.", "small")

    def copy(max_bytes: int = 0, *, dry_run: bool = False) -> Any:
        run = JobRun(max_bytes=max_bytes, dry_run=dry_run)
        return jobs.copy_to_kafka(spark, place, _settings(kafka), copying, run)

    whole = copy(dry_run=True).plan.bytes
    budget = whole // 3
    reports = [copy(budget), copy(1), copy(budget)]
    left = copy(dry_run=True).plan.bytes
    rest = copy()
    nothing = copy(dry_run=True).plan

    assert all(report.is_right and report.facts["rows"] > 0 for report in reports)
    assert reports[0].done_bytes <= budget
    assert reports[1].facts["rows"] == 1
    assert 0 < left < whole
    assert sum(report.facts["rows"] for report in [*reports, rest]) == 3_000
    assert (nothing.bytes, nothing.parts) == (0, ())
    for partition in range(6):
        mine = [value for index, _, _, value in contents(place, "b") if index == partition]
        assert _values(kafka, "small.b", partition) == mine


def test_aborted_records_are_skipped_once(
    spark: SparkSession, kafka: KafkaServer, tmp_path: Path
) -> None:
    async def fill_and_abort(bootstrap: str) -> None:
        async with Client(bootstrap) as client:
            await client.create_topic("ab", 1)
            await client.produce("ab", b"kept")
            writer = TransactionalWriter(client, "aborted")
            await writer.start()
            await writer.begin([TopicPartition("ab", 0)])
            await writer.write(TopicPartition("ab", 0), rows(1_000))
            await writer.abort()

    with BrokerProcess(tmp_path / "data") as broker:
        asyncio.run(fill_and_abort(broker.bootstrap))
    place, copying = (
        ClusterAddress(data=str(tmp_path / "data")),
        CopyRequest(("ab",), "past.", "past"),
    )

    report = jobs.copy_to_kafka(spark, place, _settings(kafka), copying)
    plan = jobs.copy_to_kafka(spark, place, _settings(kafka), copying, JobRun(dry_run=True)).plan

    assert report.is_right, report.problems
    assert _values(kafka, "past.ab") == [b"kept"]
    assert plan.bytes == 0


def test_dry_run_creates_nothing(
    spark: SparkSession, place: ClusterAddress, kafka: KafkaServer
) -> None:
    create(place, "dry", 2)
    fill(place, "dry", [rows(100)])

    plan = jobs.copy_to_kafka(
        spark, place, _settings(kafka), CopyRequest(("dry",), "dry.", "dry"), JobRun(dry_run=True)
    ).plan

    async def topics() -> list[str]:
        async with Client(kafka.bootstrap) as client:
            return await client.admin.list_topics()

    assert plan.bytes > 0
    assert not [name for name in asyncio.run(topics()) if "dry" in name]


# Settings.


def test_copy_has_the_configs_of_its_topic(
    spark: SparkSession, place: ClusterAddress, kafka: KafkaServer
) -> None:
    create(
        place, "set", 1, cleanup_policy="compact", retention_ms="-1", max_message_bytes="20000",
        message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms="1000",
        rookery_validate_compressed="true",
    )  # fmt: skip
    fill(place, "set", [rows(1_000, value=[bytes(100)] * 1_000)])

    report = jobs.copy_to_kafka(
        spark, place, _settings(kafka), CopyRequest(("set",), "own.", "own")
    )

    async def configs() -> dict[str, str | None]:
        async with Client(kafka.bootstrap) as client:
            entries = await client.admin.configs.describe(ResourceType.TOPIC, "own.set")
            return {entry.name: entry.value for entry in entries.values() if entry.source == 1}

    assert report.is_right, report.problems
    assert asyncio.run(configs()) == {
        "cleanup.policy": "compact", "retention.ms": "-1", "max.message.bytes": "20000"
    }  # fmt: skip
    assert len(_values(kafka, "own.set")) == 1_000


# Whose copy it is.


def test_job_name_is_bound_to_its_target(
    spark: SparkSession, place: ClusterAddress, kafka: KafkaServer
) -> None:
    create(place, "n", 1)
    fill(place, "n", [rows(100)])
    first, other = CopyRequest(("n",), "one.", "same"), CopyRequest(("n",), "other.", "same")

    jobs.copy_to_kafka(spark, place, _settings(kafka), first)
    for run in (JobRun(dry_run=True), JobRun()):
        with pytest.raises(Conflict, match=r"copies to one.n, not to other.n: choose another name"):
            jobs.copy_to_kafka(spark, place, _settings(kafka), other, run)
    again = jobs.copy_to_kafka(spark, place, _settings(kafka), first)

    assert again.facts["rows"] == 0
    assert len(_values(kafka, "one.n")) == 100


def test_deleted_copy_is_made_again(
    spark: SparkSession, place: ClusterAddress, kafka: KafkaServer
) -> None:
    create(place, "del", 1)
    fill(place, "del", [rows(100)])
    copying = CopyRequest(("del",), "anew.", "anew")
    jobs.copy_to_kafka(spark, place, _settings(kafka), copying)

    async def delete() -> None:
        async with Client(kafka.bootstrap) as client:
            await client.delete_topic("anew.del")

    asyncio.run(delete())
    plan = jobs.copy_to_kafka(spark, place, _settings(kafka), copying, JobRun(dry_run=True)).plan
    report = jobs.copy_to_kafka(spark, place, _settings(kafka), copying)

    assert plan.bytes > 0
    assert report.facts["rows"] == 100
    assert len(_values(kafka, "anew.del")) == 100


# The command.


def test_map_in_files_is_refused_before_spark_starts(
    place: ClusterAddress, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["job", "copy", "t", "--store", place.store, "--to-kafka", "127.0.0.1:1"]

    assert main([*arguments, "--offset-map", "./map", "--name", "x"]) == 2

    assert "keeps its map there, in the topic rookery-x-t" in capsys.readouterr().err


def test_kafka_with_authentication_is_supported(
    place: ClusterAddress, kafka_secure: KafkaServer, tmp_path: Path
) -> None:
    create(place, "safe", 1)
    fill(place, "safe", [rows(100)])
    password = tmp_path / "password"
    password.write_text("alice-secret\n")

    report = run_job(
        [
            *("copy", "safe", "--store", place.store, "--master", "local[1]"),
            *("--to-kafka", kafka_secure.address("SASL_SSL")),
            *("--ca-file", str(kafka_secure.certificates.ca)),
            *("--user", "alice", "--password-file", str(password)),
        ]
    )

    assert report["ok"]
    assert report["rows"] == 100
