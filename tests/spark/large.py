"""A large batch with a small driver: a stream copies gigabytes in one batch, with 1 GB of Java.

    python -m tests.spark.large --gigabytes 4

Prints what it took. Fails if a row is missing or too many, or if Java ran out of memory.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from rookery.spark import session
from tests.direct.sinking import make_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

say: Final = partial(print, flush=True)
_VALUE_BYTES = 4096
_PARTITIONS = 8


def main() -> int:
    """Fill a topic, copy it in one batch, compare both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--driver-memory", default="1g")
    args = parser.parse_args()
    rows = int(args.gigabytes * 1e9 / _VALUE_BYTES)
    with tempfile.TemporaryDirectory(prefix="large-") as folder:
        place = asyncio.run(make_cluster(Path(folder) / "log"))
        spark = _session(Path(folder), args.driver_memory)
        try:
            return _run(spark, place.store, rows, Path(folder))
        finally:
            spark.stop()  # else its processes still write where the folder is removed


def _session(folder: Path, memory: str) -> SparkSession:
    settings = {
        "spark.driver.memory": memory,
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    return session("large", "local[2]", settings=settings)


def _run(spark: SparkSession, store: str, rows: int, folder: Path) -> int:
    started = perf_counter()
    # Text that does not compress well: the bytes are the point.
    value = "cast(rpad('', {0}, sha2(cast(id as string), 512)) as binary) as value"
    made = spark.range(0, rows, 1, 16).selectExpr(
        "cast(cast(id as string) as binary) as key", value.format(_VALUE_BYTES)
    )
    target = {"store": store, "topic": "large", "createTopic": str(_PARTITIONS)}
    made.write.format("rookery").options(**target).mode("append").save()
    say(f"wrote {rows:,} rows of {_VALUE_BYTES} bytes in {perf_counter() - started:.1f} s")
    batches = _copy(spark, store, folder)
    first, second = (_digest(spark, store, topic) for topic in ("large", "copy"))
    say(f"rows and digest: {first} and {second}; batches: {batches}")
    return 0 if first == second and first[0] == rows and batches == 1 else 1


def _copy(spark: SparkSession, store: str, folder: Path) -> int:
    started = perf_counter()
    source = {"store": store, "subscribe": "large", "startingOffsets": "earliest"}
    target = {"store": store, "topic": "copy", "createTopic": str(_PARTITIONS), "sinkId": "large"}
    query = (
        spark.readStream.format("rookery")
        .options(**source)
        .load()
        .select("key", "value")
        .writeStream.format("rookery")
        .options(**target, checkpointLocation=str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    counts = [progress["numInputRows"] for progress in query.recentProgress]
    say(f"copied {sum(counts):,} rows in {perf_counter() - started:.1f} s")
    return sum(1 for count in counts if count)


def _digest(spark: SparkSession, store: str, topic: str) -> tuple[int, int]:
    rows = spark.read.format("rookery").options(store=store, subscribe=topic).load()
    [sums] = rows.selectExpr("count(*)", "bit_xor(xxhash64(key, value))").collect()
    return int(sums[0]), int(sums[1])


if __name__ == "__main__":
    sys.exit(main())
