"""Two topics joined as they come: ringings of birds within an hour of a sighting.

    python examples/pipeline/stream_stream_join.py STORE FOLDER

STORE is the log's store with topics of JSON: `sightings` (bird, at) and `rings` (bird, ring, at).
The result is written to the topic `ringed`, exactly once.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from rookery.spark import session


def stream(spark: SparkSession, store: str, topic: str, schema: str) -> DataFrame:
    """Return a topic of JSON as a stream of rows."""
    options = {"store": store, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("rookery").options(**options).load()
    value = f.from_json(rows.value.cast("string"), schema)
    return rows.select(value.alias("v")).select("v.*")


def run(spark: SparkSession, store: str, folder: Path) -> list[tuple[str, str]]:
    """Join all there is now; return what the topic holds then, in order."""
    seen = stream(spark, store, "sightings", "bird string, at timestamp")
    rung = stream(spark, store, "rings", "bird string, ring string, at timestamp")
    joined = (
        seen.withWatermark("at", "1 hour")
        .alias("s")
        .join(
            rung.withWatermark("at", "1 hour").alias("r"),
            f.expr("s.bird = r.bird AND r.at BETWEEN s.at AND s.at + INTERVAL 1 HOUR"),
        )
    )
    records = joined.select(
        f.col("s.bird").cast("binary").alias("key"), f.col("r.ring").cast("binary").alias("value")
    )
    query = (
        records.writeStream.format("rookery")
        .options(store=store, topic="ringed", sinkId="ringed")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    ringed = spark.read.format("rookery").options(store=store, subscribe="ringed").load()
    rows = ringed.selectExpr("string(key) AS bird", "string(value) AS ring").collect()
    return sorted((row["bird"], row["ring"]) for row in rows)


if __name__ == "__main__":
    for line in run(session(), sys.argv[1], Path(sys.argv[2])):
        print(*line)
