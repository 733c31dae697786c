"""Topics of JSON with unknown fields: Spark's VARIANT in silver, and text elsewhere."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from rookery.client.client import Client
from rookery.pipeline.declaration.load import load
from rookery.pipeline.gold import make_gold
from rookery.pipeline.run import BatchPace, run_pipeline
from rookery.records.recordcodec import Record
from rookery.tables.open import open_table
from rookery.testing.brokers import Host
from tests.pipeline.logs import Log, Message
from tests.tables.independent import rows_of

DECLARED = """
name = "loose"
[source]
store = "{store}"
topics = ["loose"]
[topics.loose]
value = "json"
schema = "variant"
[silver.checks]
counted = "json_extract(value, '$.n') IS NOT NULL"
[[sinks]]
layer = "bronze"
format = "parquet"
location = "bronze"
[[sinks]]
layer = "silver"
format = "parquet"
location = "silver"
[[sinks]]
layer = "silver"
format = "iceberg"
location = "silver-iceberg"
[[sinks]]
layer = "silver"
format = "delta"
location = "silver-delta"
[[sinks]]
layer = "silver"
format = "duckdb"
location = "silver.duckdb"
name = "silver"
[[sinks]]
layer = "silver"
format = "topic"
location = "good"
options = { store = "{store}" }
[[sinks]]
layer = "dead-letters"
format = "parquet"
location = "dead"
[[gold]]
name = "numbers"
sql = "SELECT variant_get(value, '$.n', 'long') AS n, schema_of_variant(value) AS kind FROM silver"
location = "gold"
"""
GOOD = [
    b'{"n": 1, "tags": ["a", "b"]}',
    b'{"n": 2, "nested": {"deep": 1.5, "none": null}}',
    b'{"n": 3}',
]
BAD = [b'{"n": 4', b'{"n": 5, "n": 6}', b'{"m": 7}']


async def consumed(bootstrap: str, topic: str) -> list[Record]:
    async with Client(bootstrap) as client:
        return [record async for record in client.read(topic, 0)]


def test_json_of_any_shape_becomes_a_variant(spark: SparkSession, log: Log, tmp_path: Path) -> None:
    log.write("loose", map(Message, [*GOOD, *BAD]), partitions=1)
    path = tmp_path / "loose.toml"
    path.write_text(DECLARED.replace("{store}", log.store))
    pipeline = load(path)
    engine = run_pipeline(spark, pipeline, BatchPace(is_available_now=True))
    make_gold(spark, engine)

    # Spark reads the very files, and takes the column for its own type.
    table = open_table(pipeline.sinks[1].table())
    snapshot = table.snapshot()
    assert snapshot is not None
    files = [str(tmp_path / "silver" / file.path) for file in snapshot.files]
    frame = (
        spark.read.schema("value variant, rookery_offset long")
        .parquet(*files)
        .orderBy("rookery_offset")
    )
    assert frame.schema["value"].dataType.simpleString() == "variant"
    tags = frame.selectExpr("variant_get(value, '$.tags[1]', 'string') AS tag").collect()
    assert [row.tag for row in tags] == ["b", None, None]
    texts = [row.text for row in frame.selectExpr("to_json(value) AS text").collect()]
    assert [json.loads(text) for text in texts] == [json.loads(text) for text in GOOD]
    totals = rows_of(pipeline.gold[0].table())
    assert [row[0] for row in totals] == [1, 2, 3]
    assert "DECIMAL" in str(totals[1][1])

    # What knows no such type keeps the text.
    for sink in pipeline.sinks[2:5]:
        rows = sorted(rows_of(sink), key=lambda row: str(row[0]))
        assert [row[0] for row in rows] == [text.decode() for text in GOOD], sink.format

    dead = {row[1]: row[8] for row in rows_of(pipeline.sinks[6])}
    assert [(value, dead[value]) for value in BAD] == [
        (BAD[0], "not JSON: Expecting ',' delimiter at letter 7"),
        (BAD[1], "field 'n': it is given twice"),
        (BAD[2], "check 'counted' is not true"),
    ]
    with Host(tmp_path / "again", store=log.store) as host:
        sent: list[Any] = [
            json.loads(record.value or b"")
            for record in asyncio.run(consumed(host.bootstrap, "good"))
        ]
        host.stop()
    assert [row["value"] for row in sent] == [json.loads(text) for text in GOOD]
