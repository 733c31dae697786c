"""Stock engines read and change every kind of table, and the pipeline continues.

Spark, with Iceberg's and Delta's runtime, and DuckDB, with its extensions, run in environments that
lack this project. pyiceberg, delta-rs, polars and the newest DuckDB are libraries of the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from rookery.clock import SystemClock
from rookery.pipeline.declaration.load import load
from rookery.pipeline.run import BatchPace, run_pipeline
from rookery.tables.open import open_table
from rookery.tables.port import UpkeepPolicy
from tests.pipeline.logs import Log
from tests.pipeline.stock.birds import SCHEMA, TOPIC, Bird, BirdTopic, ExpectedTable
from tests.pipeline.stock.changes import (
    CHANGED_FORMATS,
    CHANGES,
    change_delta,
    change_duckdb,
    change_iceberg,
    expect_bronze,
    expect_silver,
)
from tests.pipeline.stock.readers import CATALOG, LakeTable, Readers, in_order, spark_name
from tests.pipeline.stock.sqlengine import Row, SqlEngine, stock_duckdb, stock_spark

FORMATS: Final = ("iceberg", "delta", "parquet", "duckdb")
COLUMNS: Final = {
    "bronze": {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "timestampType": "int",
        "headers": "array<struct<key:string,value:binary>>",
    },
    "silver": {
        "id": "bigint",
        "name": "string",
        "size": "double",
        "seen": "timestamp",
        "tags": "array<string>",
        "rookery_key": "string",
        "rookery_topic": "string",
        "rookery_partition": "int",
        "rookery_offset": "bigint",
        "rookery_timestamp": "timestamp",
    },
}
DECLARED: Final = """
name = "{mode}"
[source]
store = "{store}"
topics = ["{topic}"]
[topics.{topic}]
value = "json"
key = "utf8"
schema = "{schema}"
[silver]
{silver}
[[sinks]]
layer = "dead-letters"
format = "parquet"
location = "{mode}_dead"
"""
SINK: Final = '[[sinks]]\nlayer = "{layer}"\nformat = "{format}"\nlocation = "{location}"\n'
UPSERT: Final = 'mode = "upsert"\nkeys = ["rookery_key"]'

History = dict[tuple[str, str], tuple[int, list[Row]]]
"""By layer and format: a version, and the rows that it has."""


class Lake:
    """The tables of one pipeline, what they must hold, and the engines that read them."""

    def __init__(self, folder: Path, log: Log, mode: str) -> None:
        self.topic = BirdTopic(log)
        is_upsert = mode == "upsert"
        text = DECLARED.format(
            mode=mode,
            store=log.store,
            topic=TOPIC,
            schema=SCHEMA,
            silver=UPSERT if is_upsert else "",
        )
        self.tables: dict[tuple[str, str], LakeTable] = {}
        self.expected: dict[tuple[str, str], ExpectedTable] = {}
        for layer in COLUMNS:
            for kind in FORMATS:
                table = LakeTable(kind, folder / f"{mode}_{layer}_{kind}")
                self.tables[layer, kind] = table
                self.expected[layer, kind] = ExpectedTable(layer, is_upsert=is_upsert)
                text += SINK.format(layer=layer, format=kind, location=table.location.name)
        path = folder / f"{mode}.toml"
        path.write_text(text)
        self.pipeline = load(path)

    def run(self, spark: SparkSession, birds: list[Bird]) -> None:
        """Run the pipeline for records that were written."""
        run_pipeline(spark, self.pipeline, BatchPace(is_available_now=True))
        for expected in self.expected.values():
            expected.add(birds)

    def change(self, spark: SqlEngine) -> None:
        """Let other engines change the tables."""
        for layer, changes in CHANGES.items():
            change_iceberg(spark, self.tables[layer, "iceberg"], changes)
            change_delta(spark, self.tables[layer, "delta"], changes)
            change_duckdb(self.tables[layer, "duckdb"], changes)
        for (layer, kind), expected in self.expected.items():
            if kind in CHANGED_FORMATS:
                expect = expect_bronze if layer == "bronze" else expect_silver
                expected.rows = expect(expected.rows)

    def compact(self) -> dict[tuple[str, str], int]:
        """Compact our own way; return how many files of each table were put together."""
        specs = {Path(sink.location).name: sink.table() for sink in self.pipeline.sinks}
        policy, now = UpkeepPolicy(min_files=2), SystemClock().now_ms()
        return {
            at: open_table(specs[table.location.name]).upkeep(policy, now).files_compacted
            for at, table in self.tables.items()
        }

    def check(self, readers: Readers) -> None:
        """Check that every engine finds all rows in every table."""
        for at, table in self.tables.items():
            expected = in_order(self.expected[at].rows)
            for engine, rows in readers.read(table).items():
                assert rows == expected, f"{engine} on {table.name}"

    def check_descriptions(self, spark: SqlEngine) -> None:
        """Check that stock Spark describes the columns."""
        for (layer, kind), table in self.tables.items():
            if kind in ("iceberg", "delta"):
                rows = spark.execute(f"DESCRIBE EXTENDED {spark_name(table)}")
                types = {row["col_name"]: row["data_type"] for row in rows}
                assert COLUMNS[layer].items() <= types.items()

    def versions(self) -> History:
        """Return the present version of each table that keeps them, and its rows."""
        return {
            at: (table.version(), in_order(self.expected[at].rows))
            for at, table in self.tables.items()
            if table.format != "duckdb"
        }

    def check_history(self, readers: Readers, history: History) -> None:
        """Check that every engine finds the rows of earlier versions."""
        for at, (version, expected) in history.items():
            for engine, rows in readers.read(self.tables[at], version).items():
                assert rows == expected, f"{engine} on {self.tables[at].name} as of {version}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of all tables and their catalog."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="module")
def stock(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlEngine]:
    """Start stock Spark."""
    with stock_spark(folder / CATALOG, tmp_path_factory.mktemp("engine") / "spark") as engine:
        yield engine


@pytest.fixture(scope="module")
def readers(stock: SqlEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readers]:
    """Start stock DuckDB, and return all engines."""
    with stock_duckdb(tmp_path_factory.mktemp("engine") / "duckdb") as duck:
        yield Readers(stock, duck)


@pytest.mark.usefixtures("own_spark")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_stock_engines_read_and_change_tables_and_the_pipeline_continues(
    spark: SparkSession, log: Log, folder: Path, stock: SqlEngine, readers: Readers, mode: str
) -> None:
    lake = Lake(folder, log, mode)
    lake.run(spark, lake.topic.write(range(40), "bird"))
    lake.run(spark, lake.topic.write(range(20, 60), "again"))
    lake.check(readers)
    lake.check_descriptions(stock)
    history = lake.versions()

    lake.change(stock)
    lake.check(readers)
    lake.check_history(readers, history)

    # Keys that others have deleted, updated, merged and inserted; and one that is deleted now.
    birds = lake.topic.write([*range(40), 1000], "later")
    lake.run(spark, birds + lake.topic.write([1], None))
    lake.check(readers)
    compacted = lake.compact()
    assert all(compacted["bronze", kind] for kind in ("iceberg", "delta", "parquet"))
    lake.check(readers)
    lake.check_history(readers, history)
