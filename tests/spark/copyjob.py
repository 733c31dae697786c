"""A driver that copies a topic to another: `copyjob STORE CHECKPOINT MASTER`.

It ends when it has read all that was there at its start.
"""

from __future__ import annotations

import sys
from pathlib import Path

from rookery.spark import session

_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_BATCH = 1_500


def main(store: str, checkpoint: str, master: str) -> None:
    """Copy."""
    settings = {
        "spark.driver.extraJavaOptions": _QUICK,
        "spark.executor.extraJavaOptions": _QUICK,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
        # What a test kills is missed sooner than in production.
        "spark.executor.heartbeatInterval": "2s",
    }
    spark = session("copy", master, settings=settings)
    source = {"store": store, "subscribe": "t", "startingOffsets": "earliest"}
    target = {"store": store, "topic": "copy", "sinkId": "copy"}
    query = (
        spark.readStream.format("rookery")
        .options(**source, maxOffsetsPerTrigger=_BATCH, minPartitions=2)
        .load()
        .select("key", "value", "partition")
        .writeStream.format("rookery")
        .options(**target, checkpointLocation=Path(checkpoint).as_uri())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
