"""Writes and reads topics with Spark's own Kafka connector, and prints the results as JSON.

Run as a program, since jars can be given to Spark only when it starts.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.spark.sparksession import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 2_000


def main(bootstrap: str, jars: str, folder: str, first: str, second: str) -> None:
    """Write a topic, copy it to another as a stream in two runs, and read both."""
    spark = session(
        "stock",
        "local[2]",
        settings={
            "spark.jars": jars,
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": f"{folder}/local",
            "spark.log.level": "ERROR",
        },
    )
    kafka = {"kafka.bootstrap.servers": bootstrap}
    for start in (0, ROWS):
        _write(spark, kafka | {"topic": first}, start)
        _copy(spark, kafka | {"subscribe": first}, kafka | {"topic": second}, folder)
    answer = {topic: _rows(spark, kafka | {"subscribe": topic}) for topic in (first, second)}
    Path(folder, "answer.json").write_text(json.dumps(answer))
    spark.stop()


def _write(spark: SparkSession, kafka: dict[str, str], start: int) -> None:
    rows = spark.range(start, start + ROWS, 1, 2).selectExpr(
        "cast(id % 7 as string) as key",
        "concat('value ', id) as value",
        "array(named_struct('key', 'number', 'value', cast(cast(id as string) as binary)))"
        " as headers",
    )
    rows.write.format("kafka").options(**kafka).save()


def _copy(spark: SparkSession, source: dict[str, str], target: dict[str, str], folder: str) -> None:
    stream = spark.readStream.format("kafka").options(
        **source, startingOffsets="earliest", includeHeaders="true"
    )
    # Small bites: several micro-batches, each of which asks for offsets again.
    rows = stream.option("maxOffsetsPerTrigger", "500").load()
    query = (
        rows.select("key", "value", "headers")
        .writeStream.format("kafka")
        .options(**target, checkpointLocation=f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _rows(spark: SparkSession, kafka: dict[str, str]) -> list[list[object]]:
    frame: DataFrame = (
        spark.read.format("kafka")
        .options(**kafka, includeHeaders="true")
        .load()
        .selectExpr(
            "partition",
            "offset",
            "cast(key as string)",
            "cast(value as string)",
            "cast(headers[0].value as string)",
        )
    )
    return [list(row) for row in frame.collect()]


if __name__ == "__main__":
    main(*sys.argv[1:])
