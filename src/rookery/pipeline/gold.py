"""Gold: tables that SQL makes of silver, as a whole, as of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from rookery.clock import SystemRandom
from rookery.pipeline.engine import Engine
from rookery.pipeline.frames import arrow_schema, frame_of
from rookery.pipeline.spec import Gold, Pipeline, readable
from rookery.tables.open import open_table
from rookery.tables.port import BatchName, DataFile, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_gold(spark: SparkSession, engine: Engine) -> list[str]:
    """Compute the gold tables that are older than the last batch; return their names."""
    if engine.last is None or not engine.pipeline.gold:
        return []
    _views(spark, engine.pipeline)
    made = []
    for gold in engine.pipeline.gold:
        name = BatchName(
            f"{engine.identity}/gold/{gold.name}", engine.origin.query, engine.last.batch
        )
        if open_table(gold.table()).last_commit(name.pipeline) != name:
            _make(spark, gold, name)
            made.append(gold.name)
    return made


def _views(spark: SparkSession, pipeline: Pipeline) -> None:
    for number, sink in enumerate(readable(pipeline.of("silver"))):
        frame = frame_of(spark, sink.table())
        if frame is not None:
            frame.createOrReplaceTempView(sink.name or f"silver{number or ''}")
            if not number:
                frame.createOrReplaceTempView("silver")


def _make(spark: SparkSession, gold: Gold, name: BatchName) -> None:
    frame = spark.sql(gold.sql)
    schema = arrow_schema(frame)
    found = frame.mapInArrow(
        _Stage(gold.table(), name, schema), "path string, rows long, bytes long"
    )
    files = [DataFile(row["path"], row["rows"], row["bytes"]) for row in found.collect()]
    open_table(gold.table()).replace(name, files, schema)


@dataclass(frozen=True, slots=True)
class _Stage:
    spec: TableSpec
    name: BatchName
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = f"gold-{SystemRandom().token(8).hex()}"
        files = open_table(self.spec).stage(self.name, batches, self.schema, attempt)
        if files:
            yield pa.RecordBatch.from_pylist([asdict(file) for file in files])
