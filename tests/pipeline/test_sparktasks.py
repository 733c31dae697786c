"""Upserts on executors: their results are committed once by the driver."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from rookery.pipeline.batch.sparktasks import on_spark
from rookery.tables.open import open_table
from rookery.tables.port import BatchName, TableSpec, Upsert
from tests.tables.independent import rows_of

COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "name": pa.string(), "at": pa.int64()}
SCHEMA = pa.schema(COLUMNS)


@dataclass(frozen=True)
class Where:
    """Tells in which process it was done."""

    number: int
    bytes: int = 1 << 30

    def __call__(self) -> tuple[int, int]:
        return self.number, os.getpid()


def test_tasks_run_on_executors_and_results_keep_their_order(spark: SparkSession) -> None:
    results = on_spark(spark)([Where(number) for number in range(20)])

    assert [number for number, _ in results] == list(range(20))
    assert os.getpid() not in {pid for _, pid in results}
    assert on_spark(spark)([Where(1)]) == [(1, os.getpid())]
    assert on_spark(spark)([Where(1, 10), Where(2, 10)])[1] == (2, os.getpid())


def test_upsert_runs_on_executors(spark: SparkSession, tmp_path: Path) -> None:
    upsert = Upsert(("id",), ("at",), bucket_bytes=3_000)
    spec = TableSpec("parquet", str(tmp_path / "birds"))
    for number in range(2):
        name, table = BatchName("birds", "a1", number), open_table(spec)
        rows = [
            {"id": at // (number + 1), "name": f"bird {at}", "at": number * 1000 + at}
            for at in range(1000)
        ]
        batches = [pa.RecordBatch.from_pylist(rows[at::3], SCHEMA) for at in range(3)]
        files = [
            file
            for at, batch in enumerate(batches)
            for file in table.stage(name, [batch], SCHEMA, f"t{at}")
        ]
        assert table.commit(name, files, SCHEMA, upsert, on_spark(spark, 0))
        assert not table.commit(name, files, SCHEMA, upsert)

    wanted = [(at, f"bird {2 * at + 1}", 1000 + 2 * at + 1) for at in range(500)]
    wanted += [(at, f"bird {at}", at) for at in range(500, 1000)]
    assert rows_of(spec) == wanted
