"""A Connect client: reads a topic as a table, a view and a stream, decodes; writes topics.

Run as a program, since a process speaks to Spark in one of the two ways only.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.spark import session
from rookery.spark.functions import decode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def main(remote: str, data: str, topic: str, folder: str) -> None:
    """Read the topic in every way that there is."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        spark = session("client", remote=remote)
    answer = {
        "warnings": [
            str(warning.message) for warning in said if warning.category is RuntimeWarning
        ],
        "time zone": spark.conf.get("spark.sql.session.timeZone"),
        "table": _values(_read(spark, data, topic)),
        "view": _values(_view(spark, data, topic)),
        "stream": _values(_stream(spark, data, topic, folder)),
        "written": _values(_written(spark, data, topic)),
        "again": _again(spark, data),
        "views": _views(spark, data),
        "streamed": _values(_streamed(spark, data, topic, folder)),
        "decoded": _decoded(spark, data, topic),
        "json": _json(spark),
    }
    Path(folder, "answer.json").write_text(json.dumps(answer))
    spark.stop()


def _read(spark: SparkSession, data: str, topic: str) -> DataFrame:
    return spark.read.format("rookery").options(data=data, subscribe=topic).load()


def _view(spark: SparkSession, data: str, topic: str) -> DataFrame:
    options = f"data '{data}', subscribe '{topic}'"
    spark.sql(f"CREATE TEMPORARY VIEW birds USING rookery OPTIONS ({options})")
    return spark.sql("SELECT value FROM birds WHERE partition = 1")


def _stream(spark: SparkSession, data: str, topic: str, folder: str) -> DataFrame:
    options = {"data": data, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("rookery").options(**options).load()
    query = (
        rows.select("value")
        .writeStream.format("parquet")
        .options(path=f"{folder}/rows", checkpointLocation=f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    return spark.read.parquet(f"{folder}/rows")


def _written(spark: SparkSession, data: str, topic: str) -> DataFrame:
    """Write the topic to another one; twice, which is once."""
    target = {"data": data, "topic": "written", "createTopic": "2", "sinkId": "w", "batchId": "1"}
    for _ in range(2):
        rows = _read(spark, data, topic).select("key", "value")
        rows.write.format("rookery").options(**target).mode("append").save()
    return _read(spark, data, "written")


def _again(spark: SparkSession, data: str) -> list[int]:
    """Count a topic by one DataFrame, before and after a record is written."""
    rows = _read(spark, data, "written")
    before = rows.count()
    _append(spark, data)
    return [before, rows.count()]


def _views(spark: SparkSession, data: str) -> dict[str, list[int]]:
    """Count a topic by a table and by views, before and after a record is written."""
    source = f"USING rookery OPTIONS (data '{data}', subscribe 'written')"
    spark.sql(f"CREATE TABLE written_table {source}")
    spark.sql("CREATE TEMPORARY VIEW of_table AS SELECT value FROM written_table")
    spark.table("written_table").createOrReplaceTempView("of_frame")
    spark.sql(f"CREATE TEMPORARY VIEW of_source {source}")
    names = ["written_table", "of_table", "of_frame", "of_source"]
    before = [spark.table(name).count() for name in names]
    _append(spark, data)
    return {
        name: [first, spark.table(name).count()] for name, first in zip(names, before, strict=True)
    }


def _append(spark: SparkSession, data: str) -> None:
    row = spark.sql("SELECT 'k' AS key, 'v' AS value")
    row.write.format("rookery").options(data=data, topic="written").mode("append").save()


def _streamed(spark: SparkSession, data: str, topic: str, folder: str) -> DataFrame:
    options = {"data": data, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("rookery").options(**options).load()
    query = (
        rows.select("key", "value")
        .writeStream.format("rookery")
        .options(data=data, topic="streamed", createTopic="2", sinkId="s")
        .option("checkpointLocation", f"{folder}/sink-checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    return _read(spark, data, "streamed")


def _decoded(spark: SparkSession, data: str, topic: str) -> list[str]:
    rows = _read(spark, data, topic).select(decode("value", "utf8").alias("it"))
    return sorted(row.text for row in rows.selectExpr("it.value AS text").collect())


def _json(spark: SparkSession) -> list[list[object]]:
    frame = spark.createDataFrame([(b'{"id": 7, "at": "2026-11-15"}',), (b"{",)], "value binary")
    fields = decode("value", "json", schema="id long, at date").alias("it")
    rows = frame.select(fields).selectExpr("it.value.id", "it.value.at", "it._error AS why")
    return sorted([[row.id, str(row.at), row.why] for row in rows.collect()], key=repr)


def _values(rows: DataFrame) -> list[str]:
    return sorted(bytes(row.value).decode() for row in rows.select("value").collect())


if __name__ == "__main__":
    main(*sys.argv[1:])
