"""A driver that copies a topic to another: `copyjob STORE FOLDER MASTER`.

It ends when it has read all that was there at its start. The folder is for its checkpoint, and for
orders to kill a process between the sink's commit and Spark's commit log.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_rookery import DefaultSource
from rookery.spark import session
from rookery.spark.write.streamwrite import StreamWriter

QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.extraJavaOptions": QUICK,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    # What a test kills is missed sooner than in production.
    "spark.executor.heartbeatInterval": "2s",
}
_BATCH = 1_500


class StruckSink(DataSource):
    """The product's sink, which looks for an order after each commit."""

    @classmethod
    def name(cls) -> str:
        """Return what Spark knows it by."""
        return "struck"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return what writes a stream."""
        options = dict(self.options)
        folder = options.pop(next(name for name in options if name.lower() == "struckfolder"))
        writer = DefaultSource(options).streamWriter(schema, overwrite)
        return StruckWriter(writer, folder)


class StruckWriter(StreamWriter):
    """The product's writer; what it adds runs in the process that commits."""

    def __init__(self, writer: DataSourceStreamWriter, folder: str) -> None:
        self.__dict__.update(writer.__dict__)
        self._folder = folder

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit, then strike before Spark learns of it."""
        super().commit(messages, batchId)
        from tests.spark.strike import strike  # noqa: PLC0415 (executors cannot import it)

        folder = Path(self._folder)
        has_log = (folder / "checkpoint" / "commits" / str(batchId)).exists()
        strike(folder, f"batch {batchId}, {'with' if has_log else 'without'} Spark's commit log")


def main(store: str, folder: str, master: str) -> None:
    """Copy."""
    spark = session("copy", master, settings=SETTINGS)
    spark.dataSource.register(StruckSink)
    source = {"store": store, "subscribe": "t", "startingOffsets": "earliest"}
    target = {"store": store, "topic": "copy", "sinkId": "copy", "struckFolder": folder}
    query = (
        spark.readStream.format("rookery")
        .options(**source, maxOffsetsPerTrigger=_BATCH, minPartitions=2)
        .load()
        .select("key", "value", "partition")
        .writeStream.format(StruckSink.name())
        .options(**target, checkpointLocation=Path(folder, "checkpoint").as_uri())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
