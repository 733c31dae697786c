"""DataFrames and streams into topics: every row once, also when a query is repeated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from pyspark.errors import PySparkException

from rookery.client.produce.partition import partition_of
from rookery.cluster.state.sinks import SinkState
from rookery.direct.commit import last_commit
from rookery.direct.log import DirectLog
from rookery.errors import ConfigError
from rookery.spark.read.resume import resume_offset
from rookery.spark.write.streamwrite import source_offsets
from tests.direct.sinking import Read, faults, make_cluster, make_topic, read_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

T = TypeVar("T")


class Site:
    """A cluster without brokers, and what Spark writes to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.place = asyncio.run(make_cluster(folder))

    def topic(self, name: str = "t", partitions: int = 4, **configs: str) -> None:
        async def make(log: DirectLog) -> None:
            await make_topic(log, name, partitions, **configs)

        self.do(make)

    def read(self, topic: str = "t") -> list[list[Read]]:
        """Return the records of each partition."""
        return self.do(lambda log: read_topic(log, topic))

    def values(self, topic: str = "t") -> list[bytes]:
        return sorted(record.value or b"" for part in self.read(topic) for record in part)

    def last(self, sink_id: str) -> SinkState | None:
        return self.do(lambda log: last_commit(log, sink_id))

    def check(self) -> None:
        assert not asyncio.run(faults(self.place))

    def write(self, rows: DataFrame, mode: str = "append", **options: Any) -> None:
        chosen = {"store": self.place.store, "topic": "t"} | options
        rows.write.format("rookery").options(**chosen).mode(mode).save()

    def stream(self, rows: DataFrame, checkpoint: Path, **options: Any) -> DataStreamWriter:
        chosen = {"store": self.place.store, "topic": "t", "sinkId": "sink"} | options
        return (
            rows.writeStream.format("rookery")
            .options(**chosen)
            .option("checkpointLocation", str(checkpoint))
        )

    def do(self, work: Callable[[DirectLog], Coroutine[Any, Any, T]]) -> T:
        """Do something with the log."""

        async def run() -> T:
            async with DirectLog.open(self.place) as log:
                return await work(log)

        return asyncio.run(run())


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    made.topic()
    return made


def rows(spark: SparkSession, start: int, stop: int) -> DataFrame:
    return spark.range(start, stop, numPartitions=2).selectExpr(
        "concat('k', id % 100) as key", "concat('v', id) as value"
    )


def expected(stop: int) -> list[bytes]:
    return sorted(b"v%d" % number for number in range(stop))


def finish(query: StreamingQuery) -> None:
    """Wait for a query that ends by itself."""
    assert query.awaitTermination(120)


def test_dataframe_is_written_as_records(spark: SparkSession, site: Site) -> None:
    site.write(rows(spark, 0, 20_000), compression="zstd")
    for partition, records in enumerate(site.read()):
        assert all(partition_of(record.key or b"", 4) == partition for record in records)
        numbers = [int((record.value or b"")[1:]) for record in records]
        assert numbers == sorted(numbers)  # tasks in their order, rows in theirs
    assert site.values() == expected(20_000)
    site.check()


def test_a_record_larger_than_a_batch_is_written(spark: SparkSession, site: Site) -> None:
    site.write(spark.sql("select 'k' as key, repeat('v', 1040000) as value"))
    site.write(spark.sql("select 'k' as key, repeat('v', 3000000) as value"), compression="zstd")
    assert [len(value) for value in site.values()] == [1_040_000, 3_000_000]
    site.check()


def test_every_column_is_written(spark: SparkSession, site: Site) -> None:
    site.topic("other", 2)
    made = spark.sql(
        """select 'other' as topic, 1 as partition, binary('k') as key, 'v' as value,
                  timestamp_millis(1600000000123) as timestamp,
                  array(named_struct('key', 'h', 'value', binary('1'))) as headers"""
    )
    site.write(made, topic="")
    assert site.read("other") == [[], [Read(0, b"k", b"v", 1_600_000_000_123)]]


def test_repeated_write_is_recognised_by_its_batch_id(spark: SparkSession, site: Site) -> None:
    for _ in range(2):
        site.write(rows(spark, 0, 1000), sinkId="nightly", batchId=7)
    assert site.values() == expected(1000)
    site.write(rows(spark, 1000, 1100), sinkId="nightly", batchId=9, sourceOffsets="here")
    assert site.values() == expected(1100)
    last = site.last("nightly")
    assert last is not None
    assert (last.batch_id, last.source_offsets) == (9, "here")
    with pytest.raises(PySparkException, match=r"has batch 9 already, so batch 8 .*takeOver=true"):
        site.write(rows(spark, 0, 10), sinkId="nightly", batchId=8)
    assert site.values() == expected(1100)
    # Without a name it cannot be recognised: the guide says so.
    for _ in range(2):
        site.write(rows(spark, 0, 10))
    assert len(site.values()) == 1120
    site.check()


@pytest.mark.parametrize(
    ("change", "mode", "options", "fault"),
    [
        ({}, "overwrite", {}, "a topic is appended to"),
        ({"value": "id"}, "append", {}, "column `value` of type bigint must be binary or text"),
        ({"colour": "'red'"}, "append", {}, "column `colour` of type string has no place"),
        ({}, "append", {"topic": "absent"}, "there is no topic 'absent'; create it, or set"),
        ({}, "append", {"batchId": 1}, "batchId needs sinkId"),
        ({}, "append", {"sinkid": "s", "batchId": "x"}, "batchId='x': must be a whole number"),
        ({}, "append", {"compresion": "zstd"}, "do you mean compression"),
        ({}, "append", {"compression": "brotli"}, "there are none, gzip"),
        ({}, "append", {"kafka.bootstrap.servers": "x:1"}, "written to the store, not to brokers"),
        ({}, "append", {"sinkId": "s"}, "sinkId without batchId"),
        ({}, "append", {"topic": ""}, "set the option `topic`, or have a column `topic`"),
    ],
)
def test_invalid_write_is_refused_before_it_starts(
    spark: SparkSession,
    site: Site,
    change: dict[str, str],
    mode: str,
    options: dict[str, Any],
    fault: str,
) -> None:
    made = spark.range(5).selectExpr(
        *(f"{text} as {name}" for name, text in ({"value": "'v'"} | change).items())
    )
    with pytest.raises(PySparkException, match=fault):
        site.write(made, mode, **options)
    assert site.values() == []


def test_topic_is_created_on_request(spark: SparkSession, site: Site) -> None:
    site.write(rows(spark, 0, 100), topic="new", createTopic=3)
    assert [len(part) > 0 for part in site.read("new")] == [True] * 3


def test_failed_row_leaves_no_records(spark: SparkSession, site: Site) -> None:
    site.topic("small", 1, max_message_bytes="200")
    made = spark.range(1000).selectExpr("if(id = 999, repeat('x', 500), 'v') as value")
    with pytest.raises(PySparkException, match=r"topic small partition 0: row .*max.message.bytes"):
        site.write(made, topic="small")
    assert site.values("small") == []
    site.check()


def files(spark: SparkSession, folder: Path, count: int) -> DataFrame:
    """Make a stream of a given number of batches, one file of 1000 rows each."""
    for number in range(count):
        path = folder / f"in/part-{number}"
        if not path.exists():
            made = rows(spark, number * 1000, number * 1000 + 1000)
            made.coalesce(1).write.parquet(str(path))
    return (
        spark.readStream.schema("key string, value string")
        .option("maxFilesPerTrigger", 1)
        .option("recursiveFileLookup", "true")
        .parquet(str(folder / "in"))
    )


def test_stream_writes_each_batch_once(spark: SparkSession, site: Site, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    source = files(spark, tmp_path, 3)
    finish(site.stream(source, checkpoint).trigger(availableNow=True).start())
    assert site.values() == expected(3000)
    last = site.last("sink")
    assert last is not None
    assert last.batch_id == 2
    # What the sources had read is kept with the batch, to continue from without the checkpoint.
    logged = (checkpoint / "offsets" / "2").read_text().splitlines()[2:]
    assert json.loads(last.source_offsets) == logged

    # Killed after the sink's commit and before Spark's own: Spark runs the batch again.
    for name in ("2", ".2.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    source = files(spark, tmp_path, 4)
    finish(site.stream(source, checkpoint).trigger(availableNow=True).start())
    assert site.values() == expected(4000)

    # Another checkpoint would start over, and is refused.
    query = site.stream(source, tmp_path / "fresh").trigger(availableNow=True).start()
    with pytest.raises(PySparkException, match=r"is written by query .* takeOver=true"):
        query.awaitTermination(120)
    assert site.values() == expected(4000)
    again = site.stream(source, tmp_path / "fresh", takeOver="true", topic="other", createTopic=1)
    finish(again.trigger(availableNow=True).start())
    assert len(site.values("other")) == 4000
    site.check()


def test_stream_that_cannot_be_exactly_once_is_refused(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    source = files(spark, tmp_path, 1)
    for options, fault in (
        ({"sinkId": ""}, "a stream needs the option sinkId"),
        ({"batchId": "1"}, "numbered by Spark"),
        ({"colour": "red"}, "option 'colour' is not known"),
    ):
        writer = site.stream(source, tmp_path / fault[:8], **options)
        with pytest.raises(PySparkException, match=fault):
            finish(writer.trigger(availableNow=True).start())
    counted = source.groupBy("key").count().selectExpr("key", "string(count) as value")
    writer = site.stream(counted, tmp_path / "counted").outputMode("complete")
    with pytest.raises(PySparkException, match="output mode complete"):
        finish(writer.trigger(availableNow=True).start())
    assert site.values() == []


def test_foreach_batch_writes_once(spark: SparkSession, site: Site, tmp_path: Path) -> None:
    """Two writes of one batch, each under its own name; the batch is run again."""

    def both(made: DataFrame, _number: int) -> None:
        site.write(made, sinkId="one")
        site.write(made, sinkId="two", topic="copy", createTopic=2)

    checkpoint = tmp_path / "checkpoint"
    for run in range(2):
        source = files(spark, tmp_path, 2)
        writer = source.writeStream.foreachBatch(both).option("checkpointLocation", str(checkpoint))
        finish(writer.trigger(availableNow=True).start())
        assert site.values() == site.values("copy") == expected(2000)
        if run == 0:
            for name in ("1", ".1.crc"):
                (checkpoint / "commits" / name).unlink(missing_ok=True)
    site.check()


def test_two_writes_of_a_batch_need_two_sink_names(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    def both(made: DataFrame, _number: int) -> None:
        site.write(made, sinkId="one")
        site.write(made, sinkId="one", topic="copy", createTopic=2)

    writer = files(spark, tmp_path, 1).writeStream.foreachBatch(both)
    query = writer.option("checkpointLocation", str(tmp_path / "cp")).trigger(availableNow=True)
    with pytest.raises(PySparkException, match=r"has this batch already, in topic 't'.* its own"):
        finish(query.start())
    assert site.values() == expected(1000)
    assert site.values("copy") == []
    site.check()


def test_default_checkpoint_is_identified_by_the_query_name(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    setting = "spark.sql.streaming.checkpointLocation"
    spark.conf.set(setting, str(tmp_path / "all"))
    try:
        chosen = {"store": site.place.store, "topic": "t", "sinkId": "sink"}
        writer = files(spark, tmp_path, 1).writeStream.format("rookery").options(**chosen)
        finish(writer.queryName("named-one").trigger(availableNow=True).start())
    finally:
        spark.conf.unset(setting)
    last = site.last("sink")
    assert last is not None
    logged = (tmp_path / "all" / "named-one" / "offsets" / "0").read_text().splitlines()[2:]
    assert json.loads(last.source_offsets) == logged


def test_unreadable_checkpoint_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(2):
        assert source_offsets("s3a://bucket/checkpoint", 7) == ""
    [told] = caplog.messages
    assert "resumeFrom will not know" in told
    assert "s3a://bucket/checkpoint" in told


def copied(spark: SparkSession, site: Site, starting: str, **more: str) -> DataFrame:
    options = {"store": site.place.store, "subscribe": "t", "startingOffsets": starting, **more}
    stream = spark.readStream.format("rookery").options(**options).load()
    return stream.select("key", "value", "timestamp")


def test_stream_copies_from_topic_to_topic(spark: SparkSession, site: Site, tmp_path: Path) -> None:
    site.topic("copy", 2)
    checkpoint = tmp_path / "checkpoint"
    for number in range(2):
        site.write(rows(spark, number * 500, number * 500 + 500))
        writer = site.stream(copied(spark, site, "earliest"), checkpoint, topic="copy")
        finish(writer.trigger(availableNow=True).start())
        assert site.values("copy") == expected(number * 500 + 500)
    # The checkpoint is lost: the sink knows how far it had got.
    site.write(rows(spark, 1000, 1500))
    fresh = copied(spark, site, "earliest", resumeFrom="sink")
    writer = site.stream(fresh, tmp_path / "fresh", topic="copy", takeOver="true")
    finish(writer.trigger(availableNow=True).start())
    assert site.values("copy") == expected(1500)
    site.check()


def test_sink_that_cannot_be_resumed_is_reported(
    spark: SparkSession, site: Site, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="nothing was ever committed to such a sink"):
        site.do(lambda log: resume_offset(log, "absent"))
    finish(
        site.stream(files(spark, tmp_path, 1), tmp_path / "cp").trigger(availableNow=True).start()
    )
    with pytest.raises(ConfigError, match="names 0 sources of this kind"):
        site.do(lambda log: resume_offset(log, "sink"))


def test_cluster_address_is_required(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="no place is named"):
        rows(spark, 0, 1).write.format("rookery").option("topic", "t").mode("append").save()
