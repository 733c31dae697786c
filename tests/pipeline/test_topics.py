"""Pipelines that write topics: each record once, with the bytes that it had."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from rookery.client.client import Client
from rookery.pipeline.batch.engine import BatchEngine, BatchPlan
from rookery.pipeline.declaration.load import load
from rookery.pipeline.declaration.spec import Pipeline
from rookery.pipeline.manifests import Manifests
from rookery.records.recordcodec import Record
from rookery.tables.open import open_table
from rookery.testing.brokers import Host
from tests.pipeline.localrows import LocalRows, bird, raw
from tests.pipeline.logs import Log, Message

DECLARED = """
name = "birds"
[source]
store = "{store}"
topics = ["birds"]
[topics.birds]
schema = "id long, name string"
[[sinks]]
layer = "bronze"
format = "parquet"
location = "bronze"
[[sinks]]
layer = "silver"
format = "topic"
location = "good"
options = { store = "{store}", key = "name", partitions = "2" }
[[sinks]]
layer = "dead-letters"
format = "topic"
location = "bad"
options = { store = "{store}", key = "key", value = "value", headers = "reason,partition,offset" }
"""


def engine_of(pipeline: Pipeline) -> BatchEngine:
    manifests = Manifests(pipeline.state)
    origin = manifests.origin() or manifests.begin({"birds": {"0": 0}})
    engine = BatchEngine(BatchPlan.of(pipeline), pipeline.name, manifests, origin)
    engine.recover()
    return engine


def rows(*values: bytes, begin: int = 0) -> Any:
    return LocalRows([raw(values, begin=begin)])


async def consumed(bootstrap: str, topic: str) -> list[Record]:
    async with Client(bootstrap) as client:
        view = await client.topic(topic)
        return [
            record
            for partition in view.partitions
            async for record in client.read(topic, partition)
        ]


def test_rows_are_written_as_records_once(log: Log, tmp_path: Path) -> None:
    log.write("birds", [Message(b"any")], partitions=1)
    path = tmp_path / "birds.toml"
    path.write_text(DECLARED.replace("{store}", log.store))
    pipeline = load(path)

    engine = engine_of(pipeline)
    engine.run(rows(bird(0), b"{broken", bird(2)))
    engine.run(rows(bird(3), begin=3))
    # Whatever is committed again counts once.
    engine_of(pipeline)
    last = engine.last
    assert last is not None
    assert open_table(pipeline.sinks[1].table()).last_commit("birds") is not None

    with Host(tmp_path / "again", store=log.store) as host:
        good = asyncio.run(consumed(host.bootstrap, "good"))
        bad = asyncio.run(consumed(host.bootstrap, "bad"))
        host.stop()
    values = sorted(json.loads(record.value or b"")["id"] for record in good)
    assert values == [0, 2, 3]
    assert {record.key for record in good} == {b"bird 0", b"bird 2", b"bird 3"}
    [letter] = bad
    assert (letter.key, letter.value) == (b"k1", b"{broken")
    headers = dict(letter.headers)
    assert headers["partition"] == b"0"
    assert headers["offset"] == b"1"
    assert headers["reason"]
