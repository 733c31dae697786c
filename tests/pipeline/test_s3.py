"""A pipeline without local files: log, state and tables are in a real S3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from rookery.errors import ConfigError
from rookery.pipeline.declaration.load import load
from rookery.pipeline.manifests import Manifests
from rookery.pipeline.run import BatchPace, open_engine, run_pipeline
from rookery.pipeline.upkeep import keep_up
from rookery.store.address import parse
from rookery.store.open import name_of
from rookery.tables.open import open_table
from rookery.testing.backends import ServerBackend
from tests.pipeline.logs import Log, Message

DECLARED = """
name = "birds"
state = "{state}"
[source]
store = "{store}"
topics = ["birds"]
[topics.birds]
schema = "id long, name string"
[[sinks]]
layer = "bronze"
format = "parquet"
location = "{bronze}"
[[sinks]]
layer = "silver"
format = "delta"
location = "{silver}"
[[sinks]]
layer = "dead-letters"
format = "parquet"
location = "{dead}"
"""
NOW = BatchPace(is_available_now=True)


def birds(first: int, count: int) -> list[Message]:
    return [
        Message(json.dumps({"id": number, "name": f"bird {number}"}).encode())
        for number in range(first, first + count)
    ]


def ids(url: str) -> list[int]:
    """Read a Delta table by its own library."""
    options = {**parse(url).options, "allow_http": "true"}
    table = DeltaTable(name_of(url), storage_options=options)
    numbers: list[Any] = table.to_pyarrow_table()["id"].to_pylist()
    return sorted(numbers)


@pytest.mark.timeout(600)
def test_log_state_and_tables_can_be_in_s3(
    spark: SparkSession, backend: ServerBackend, tmp_path: Path
) -> None:
    places = {
        name: backend.store(f"pipeline-in-s3/{name}")
        for name in ("store", "state", "bronze", "silver", "dead")
    }
    text = DECLARED
    for name, url in places.items():
        text = text.replace(f"{{{name}}}", url)
    path = tmp_path / "birds.toml"
    path.write_text(text)
    pipeline = load(path)
    log = Log(tmp_path, places["store"])
    log.write("birds", [*birds(0, 20), Message(b"{broken")])

    run_pipeline(spark, pipeline, NOW)
    log.write("birds", birds(20, 10))

    def stop(step: str) -> None:
        if step.startswith("commit silver"):
            raise ConfigError("stopped here")

    # A batch that is written down and not in all tables: the next run only commits it.
    with pytest.raises(ConfigError, match="stopped here"):
        run_pipeline(spark, pipeline, NOW, hook=stop)
    assert ids(places["silver"]) == list(range(20))
    open_engine(pipeline)
    assert ids(places["silver"]) == list(range(30))
    run_pipeline(spark, pipeline, NOW)

    last = Manifests(pipeline.state).last()
    assert last is not None
    assert last.batch == 1
    assert ids(places["silver"]) == list(range(30))
    dead = [
        row for part in open_table(pipeline.sinks[2].table()).read() for row in part.to_pylist()
    ]
    assert [row["value"] for row in dead] == [b"{broken"]
    keep_up(pipeline)
    assert ids(places["silver"]) == list(range(30))
    # Nothing of it was created next to the declaration.
    assert not (tmp_path / ".rookery").exists()
