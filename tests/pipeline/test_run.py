"""Topics to tables: all layers, repeatedly, read by independent programs."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rookery.client.client import Client
from rookery.errors import Conflict, Corrupt
from rookery.model.partition import TopicPartition
from rookery.pipeline.batch.engine import BatchEngine
from rookery.pipeline.declaration.load import load
from rookery.pipeline.declaration.spec import Pipeline
from rookery.pipeline.metrics import BatchMetrics
from rookery.pipeline.run import BatchPace, run_pipeline
from rookery.testing.brokers import Host
from rookery.testing.wait import wait_until
from tests.pipeline.logs import Log, Message
from tests.tables.independent import rows_of

DECLARED = """
name = "birds"

[source]
store = "{store}"
topics = ["birds"]
group-id = "birds-pipeline"

[topics.birds]
value = "json"
schema = "id long, name string"

[silver.checks]
named = "length(name) > 0"

[[sinks]]
layer = "bronze"
format = "parquet"
location = "lake/bronze"

[[sinks]]
layer = "silver"
format = "iceberg"
location = "lake/silver"

[[sinks]]
layer = "silver"
format = "parquet"
location = "lake/silver-parquet"

[[sinks]]
layer = "dead-letters"
format = "parquet"
location = "lake/dead"
"""
NOW = BatchPace(is_available_now=True)


@pytest.fixture(scope="session")
def spark(shared_spark: SparkSession) -> SparkSession:
    """Run with every change."""
    return shared_spark


def declared(folder: Path, log: Log, text: str = DECLARED) -> Pipeline:
    path = folder / "birds.toml"
    path.write_text(text.replace("{store}", log.store))
    return load(path)


def birds(first: int, count: int) -> list[Message]:
    return [
        Message(json.dumps({"id": number, "name": f"bird {number}"}).encode(), b"k%d" % number)
        for number in range(first, first + count)
    ]


def table(pipeline: Pipeline, layer: str, number: int = 0) -> list[tuple[object, ...]]:
    sinks = [sink for sink in pipeline.sinks if sink.layer == layer]
    return rows_of(sinks[number])


async def group_offsets(log: Log, folder: Path) -> dict[tuple[str, int], int]:
    with Host(folder / "asked", store=log.store) as host:
        async with Client(host.bootstrap) as client:
            offsets = await client.groups.committed_offsets("birds-pipeline")
        host.stop()
    return {(place.topic, place.partition): offset.offset for place, offset in offsets.items()}


def test_a_topic_becomes_tables_batch_by_batch(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    bad = [Message(b'{"id": 1, "name"'), Message(b'{"id": 7, "name": ""}'), Message(None)]
    log.write("birds", [*birds(0, 100), *bad])
    pipeline = declared(tmp_path, log)
    told: list[BatchMetrics] = []

    run_pipeline(spark, pipeline, NOW, told.append)
    log.write("birds", birds(100, 50))
    run_pipeline(spark, pipeline, NOW, told.append)
    run_pipeline(spark, pipeline, NOW, told.append)

    ids = [row[0] for row in table(pipeline, "silver")]
    assert ids == list(range(150))
    assert table(pipeline, "silver") == table(pipeline, "silver", 1)
    assert len(table(pipeline, "bronze")) == 153
    dead = table(pipeline, "dead-letters")
    reasons = sorted(str(row[8]) for row in dead)
    assert len(dead) == 2
    assert reasons[0] == "check 'named' is not true"
    assert {row[1] for row in dead} == {bad[0].value, bad[1].value}
    assert [metrics.batch for metrics in told] == [0, 1]
    assert told[0].rows["bronze"] == 103
    assert told[0].rows["dead-letters"] == 2
    assert told[1].lag == {"birds-0": 0, "birds-1": 0}
    assert asyncio.run(group_offsets(log, tmp_path)) == {("birds", 0): 77, ("birds", 1): 76}
    assert told[1].freshness_p99_ms is not None
    assert told[1].freshness_p99_ms > 0


def test_pipeline_runs_until_it_is_stopped(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    log.write("birds", birds(0, 10))
    text = DECLARED + "[upkeep]\nevery-batches = 1\nsmall-bytes = 1000000\n"
    pipeline = declared(tmp_path, log, text.replace('name = "birds"\n', 'name = "onward"\n', 1))
    told: list[BatchMetrics] = []
    pace = BatchPace(interval_ms=100)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_pipeline, spark, pipeline, pace, told.append)
        for round_ in range(1, 4):
            wait_until(partial(_has, told, 10 * round_, running), seconds=200)
            assert not running.done(), running.result()
            log.write("birds", birds(10 * round_, 10))
        wait_until(partial(_has, told, 40, running), seconds=200)
        pace.end.set()
        running.result(timeout=120)

    assert [row[0] for row in table(pipeline, "silver")] == list(range(40))
    assert [row[0] for row in table(pipeline, "silver", 1)] == list(range(40))


def test_deleted_records_stop_a_run_unless_skipping_is_allowed(
    spark: SparkSession, log: Log, tmp_path: Path
) -> None:
    log.write("birds", birds(0, 10))
    pipeline = declared(tmp_path, log)
    run_pipeline(spark, pipeline, NOW)
    log.write("birds", birds(10, 10))
    asyncio.run(delete_before(log, tmp_path, 8))

    with pytest.raises(Conflict, match=r"birds-0 offsets 5 to 7: the log begins at 8"):
        run_pipeline(spark, pipeline, NOW)
    skipping = replace(pipeline, source=replace(pipeline.source, on_data_loss="skip"))
    run_pipeline(spark, skipping, NOW)

    # Of either partition the offsets 5, 6 and 7 are gone.
    assert [row[0] for row in table(pipeline, "silver")] == [*range(10), *range(16, 20)]


async def delete_before(log: Log, folder: Path, offset: int) -> None:
    with Host(folder / "deleting", store=log.store) as host:
        async with Client(host.bootstrap) as client:
            await client.admin.delete_records(
                {TopicPartition("birds", number): offset for number in range(2)}
            )
        host.stop()


def test_damage_is_reported_as_corrupt(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    log.write("birds", [Message(json.dumps({"id": 1, "name": "x" * 9000}).encode())] * 100)
    pipeline = declared(tmp_path, log)
    for path in Path(log.store.removeprefix("file://")).rglob("objects/*/*"):
        data = bytearray(path.read_bytes())
        if len(data) < 9000:
            continue  # it only reports earlier offsets
        data[-100] ^= 1
        path.chmod(0o644)
        path.write_bytes(data)

    with pytest.raises(Corrupt, match=r"birds-\d from offset \d+ on: .*CRC-32C does not match"):
        run_pipeline(spark, pipeline, NOW)


def _has(told: list[BatchMetrics], rows: int, running: Future[BatchEngine]) -> bool:
    return sum(metrics.rows["bronze"] for metrics in told) >= rows or running.done()
