"""Headers through Spark: present if a record has some, else null."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from rookery.client.admin import NewTopic
from rookery.client.client import Client
from rookery.pipeline.batch.headers import empty_headers, fill_headers
from rookery.pipeline.declaration.columns import RAW
from rookery.pipeline.declaration.load import load
from rookery.pipeline.run import BatchPace, run_pipeline
from rookery.records.recordcodec import Record
from rookery.tables.open import open_table
from rookery.testing.brokers import Host

LISTS = [[], [{"key": "a", "value": b"1"}], None, [{"key": "b", "value": None}] * 2, []]
DECLARED = """
name = "birds"
[source]
store = "{store}"
topics = ["birds"]
[[sinks]]
layer = "bronze"
format = "parquet"
location = "bronze"
"""


@pytest.mark.parametrize("span", [(0, 5), (1, 4), (0, 1), (3, 4), (2, 3), (0, 0)])
def test_empty_header_lists_are_removed(span: tuple[int, int]) -> None:
    kind = RAW.field("headers").type
    columns: dict[str, Any] = {"number": pa.array(range(5)), "headers": pa.array(LISTS, kind)}
    batch = pa.record_batch(columns).slice(span[0], span[1] - span[0])

    result = empty_headers(batch)

    assert result.schema == batch.schema
    assert result.column("headers").to_pylist() == [
        headers or None for headers in LISTS[slice(*span)]
    ]
    assert result.column("number") == batch.column("number")


def test_headers_sent_to_python_are_never_null(spark: SparkSession) -> None:
    kind = "array<struct<key: string, value: binary>>"
    some = "array(named_struct('key', 'a', 'value', cast('1' as binary)))"
    rows = spark.range(4).selectExpr(f"if(id = 2, {some}, cast(null as {kind})) AS headers")

    headers = [row.headers for row in fill_headers(rows).collect()]

    assert [len(entries) for entries in headers] == [0, 0, 1, 0]


def test_bronze_contains_the_record_headers(spark: SparkSession, tmp_path: Path) -> None:
    store = f"file://{tmp_path / 'log'}"
    with Host(tmp_path / "broker", store=store) as host:
        asyncio.run(_write(host.bootstrap))
        host.stop()
    path = tmp_path / "birds.toml"
    path.write_text(DECLARED.replace("{store}", store))
    pipeline = load(path)

    run_pipeline(spark, pipeline, BatchPace(is_available_now=True))

    rows = pa.Table.from_batches(open_table(pipeline.sinks[0].table()).read()).to_pylist()
    headers_of = {row["value"]: row["headers"] for row in rows}
    assert headers_of == {b"with": [{"key": "a", "value": b"1"}], b"without": None}


async def _write(bootstrap: str) -> None:
    async with Client(bootstrap) as client:
        await client.admin.create_topics([NewTopic(name="birds", partitions=1)])
        async with client.producer() as producer:
            await producer.send("birds", Record(None, b"with", (("a", b"1"),)), 0)
            await producer.send("birds", Record(None, b"without"), 0)
