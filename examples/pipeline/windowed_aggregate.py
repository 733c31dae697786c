"""How many birds were seen in each ten minutes, counted as they come.

    python examples/pipeline/windowed_aggregate.py STORE FOLDER

STORE is the log's store (`file:///…`, `s3://…`) with a topic `sightings` of JSON: bird, at.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from rookery.spark import session


def counted(rows: DataFrame) -> DataFrame:
    """Return how many of each bird there were in each ten minutes."""
    sighting = f.from_json(rows.value.cast("string"), "bird string, at timestamp")
    seen = rows.select(sighting.alias("s")).select("s.*").where("bird IS NOT NULL")
    return (
        seen.withWatermark("at", "10 minutes")
        .groupBy(f.window("at", "10 minutes").alias("window"), "bird")
        .count()
        .select("window.start", "bird", "count")
    )


def run(spark: SparkSession, store: str, folder: Path) -> list[tuple[str, str, int]]:
    """Count all there is now; return windows that have ended, in order."""
    topic = {"store": store, "subscribe": "sightings", "startingOffsets": "earliest"}
    rows = spark.readStream.format("rookery").options(**topic).load()
    query = (
        counted(rows)
        .writeStream.format("parquet")
        .option("path", str(folder / "counts"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    windows = spark.read.parquet(str(folder / "counts")).orderBy("start", "bird").collect()
    return [(f"{row['start']:%H:%M}", row["bird"], row["count"]) for row in windows]


if __name__ == "__main__":
    for line in run(session(), sys.argv[1], Path(sys.argv[2])):
        print(*line)
