"""Topics as streams: every record once, regardless of events between two batches."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from rookery.cluster.state.partition import Row
from rookery.errors import Conflict
from rookery.formats.keys import object_key
from rookery.spark.lag import publish_lag
from rookery.spark.read.batchread import Share
from rookery.spark.read.offset import StreamOffset
from rookery.spark.read.options import ReadOptions
from rookery.spark.read.streamread import StreamReader
from rookery.spark.schema import COLUMNS
from rookery.testing.wait import wait_until
from tests.direct.logs import COMPACT, Cluster, create, partitions_of, send, values
from tests.spark.logs import options_of, run_all, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """Return a cluster over a store in a folder."""
    return Cluster(tmp_path)


def reader(cluster: Cluster, **options: Any) -> StreamReader:
    """Return a reader as Spark would make it."""
    given = ReadOptions.of(options_of(cluster, **options), is_stream=True)
    return StreamReader(given.with_columns(COLUMNS))


def offsets_of(source: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """Return the offsets of a batch, of all its tasks."""
    return [
        offset
        for share in source.partitions(start, end)
        for batch in source.read(share)
        for offset in map(int, batch["offset"].to_numpy())
    ]


def test_equal_offsets_have_equal_text() -> None:
    first, second = b"a" * 16, b"b" * 16
    offset = StreamOffset(
        {(second, 10): 5, (first, 2): 3, (second, 9): 4}, {(second, 10): 0, (first, 2): 0}
    )
    text = json.dumps(offset.as_json())
    assert json.dumps(StreamOffset.of(json.loads(text)).as_json()) == text
    other = StreamOffset(dict(sorted(offset.next.items())), dict(sorted(offset.origin.items())))
    assert json.dumps(other.as_json()) == text
    assert "version" in text
    assert "cleaned" not in text
    pinned = replace(offset, cleaned={(second, 10): 5, (second, 9): 0})
    text = json.dumps(pinned.as_json())
    assert StreamOffset.of(json.loads(text)) == pinned
    other = replace(pinned, cleaned=dict(sorted(pinned.cleaned.items())))
    assert json.dumps(other.as_json()) == text


def test_read_limits_are_shared_and_all_records_are_read(cluster: Cluster) -> None:
    with cluster.broker() as broker:
        create(broker, "t", 2)
        send(broker, "t", values(90, partitions=2) + values(10))
    source = reader(cluster, startingOffsets="earliest", maxOffsetsPerTrigger=30)
    assert source.getDefaultReadLimit() == ReadMaxRows(30)
    start, sizes = source.initialOffset(), []
    while True:
        end = source.latestOffset(start, source.getDefaultReadLimit())
        if json.dumps(end) == json.dumps(start):
            break
        sizes.append(len(offsets_of(source, start, end)))
        start = end
    assert sum(sizes) == 100
    assert max(sizes) <= 31
    beginning = source.initialOffset()
    everything = source.latestOffset(beginning, ReadAllAvailable())
    assert len(offsets_of(source, beginning, everything)) == 100
    source.stop()
    bytes_bound = reader(cluster, startingOffsets="earliest", maxBytesPerTrigger=2_000)
    start = bytes_bound.initialOffset()
    end = bytes_bound.latestOffset(start, bytes_bound.getDefaultReadLimit())
    assert 5 <= len(offsets_of(bytes_bound, start, end)) <= 30
    bytes_bound.stop()


def test_small_batch_waits_for_more_records(cluster: Cluster) -> None:
    with cluster.broker() as broker:
        send(broker, "t", values(10))
        source = reader(
            cluster, startingOffsets="earliest", minOffsetsPerTrigger=5, maxTriggerDelay="1h"
        )
        start = source.initialOffset()
        first = source.latestOffset(start, source.getDefaultReadLimit())
        send(broker, "t", values(3))
        assert source.latestOffset(first, source.getDefaultReadLimit()) == first
        send(broker, "t", values(3))
        second = source.latestOffset(first, source.getDefaultReadLimit())
        assert offsets_of(source, first, second) == list(range(10, 16))
        send(broker, "t", values(1))
        # A query that is to end cannot wait for what may never come.
        source.prepareForTriggerAvailableNow()
        assert source.latestOffset(second, source.getDefaultReadLimit()) != second
        source.stop()


def test_repeated_first_batch_starts_at_the_same_offset(cluster: Cluster) -> None:
    with cluster.broker() as broker:
        send(broker, "t", values(5))
        source = reader(cluster)
        start = source.initialOffset()
        send(broker, "t", values(5))
        end = source.latestOffset(start, ReadAllAvailable())
        assert offsets_of(source, start, end) == list(range(5, 10))
        # After a restart Spark asks again where to begin, and `latest` is later by now.
        again = reader(cluster)
        later = again.initialOffset()
        assert later != start
        assert offsets_of(again, later, end) == list(range(5, 10))
        assert offsets_of(again, again.initialOffset(), end) == list(range(5, 10))
        source.stop()
        again.stop()


def test_new_partitions_and_topics_are_read_from_their_start(cluster: Cluster) -> None:
    with cluster.broker() as broker:
        create(broker, "t1")
        send(broker, "t1", values(5))
        source = reader(cluster, subscribePattern="t.*")
        start = source.initialOffset()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_partitions([NewPartitions("t1", 2)])["t1"].result(30)
        create(broker, "t2")
        send(broker, "t2", values(3))
        send(broker, "t1", [row._replace(partition=1) for row in values(2)])
        end = source.latestOffset(start, ReadAllAvailable())
        assert sorted(offsets_of(source, start, end)) == [0, 0, 1, 1, 2]
        # A replay finds the beginnings in the end that was logged.
        assert sorted(offsets_of(source, source.initialOffset(), end)) == [0, 0, 1, 1, 2]
        source.stop()


def test_replayed_batch_is_the_same_after_rewriting(cluster: Cluster) -> None:
    with cluster.broker(inline_bytes=0) as broker:
        send(broker, "t", values(500))
    source = reader(cluster, startingOffsets="earliest")
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    tasks = source.partitions(start, end)
    source.stop()
    cluster.rewrite(delete_delay_ms=0, snapshot_entries=1)
    again = reader(cluster, startingOffsets="earliest")
    assert offsets_of(again, start, end) == list(range(500))
    # Tasks that were planned before continue, too.
    assert sum(batch.num_rows for task in tasks for batch in again.read(task)) == 500
    assert all(isinstance(task, Share) for task in tasks)
    again.stop()


def test_compaction_waits_for_a_batch_that_may_be_repeated(cluster: Cluster) -> None:
    with cluster.broker() as broker:
        create(broker, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        send(broker, "t", values(500))
    source = reader(cluster, startingOffsets="earliest")
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    assert len(offsets_of(source, start, end)) == 500
    with cluster.rewriting(**COMPACT) as broker:
        wait_until(lambda: all(kind & 4 for kind in partitions_of(broker, "t")[0].kinds))
        again = reader(cluster, startingOffsets="earliest")
        assert len(offsets_of(again, start, end)) == 500
        # The batch is over: nothing is read again.
        assert source.latestOffset(end, ReadAllAvailable()) == end
        assert again.latestOffset(end, ReadAllAvailable()) == end
        wait_until(lambda: partitions_of(broker, "t")[0].cleaned_to > 400)
    source.stop()
    again.stop()


def test_batch_compacted_since_its_plan_is_reported(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.broker(inline_bytes=0) as broker:
        create(broker, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        send(broker, "t", values(500))
    source = reader(cluster, startingOffsets="earliest", pinFor="1ms")
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    tasks = source.partitions(start, end)
    assert offsets_of(source, start, end) == list(range(500))
    source.stop()
    with cluster.rewriting(delete_delay_ms=0, snapshot_entries=1, **COMPACT) as broker:
        wait_until(lambda: partitions_of(broker, "t")[0].cleaned_to > 400)
        # What the tasks were to read is deleted.
        names = {Path(object_key(row.object_id)).name for row in _rows(tasks)}
        wait_until(lambda: not names & {path.name for path in (tmp_path / "store").rglob("*")})

    strict = reader(cluster, startingOffsets="earliest")
    told = r"t-0 offsets 0 to 4\d\d: compacted since they were planned for \(a longer pinFor"
    with pytest.raises(Conflict, match=told):
        strict.partitions(start, end)
    with pytest.raises(Conflict, match=told):
        list(strict.read(tasks[0]))
    gaps = tmp_path / "gaps"
    lax = reader(cluster, onDataLoss="report", gapsTo=gaps)
    assert len(offsets_of(lax, start, end)) < 100
    [file] = gaps.iterdir()
    assert "compacted" in json.loads(file.read_text())["reason"]
    # A new query reads what there is, and its batch is good as long as nothing is compacted.
    begin = strict.initialOffset()
    fresh = strict.latestOffset(begin, ReadAllAvailable())
    assert len(offsets_of(strict, begin, fresh)) < 100
    assert json.dumps(strict.latestOffset(fresh, ReadAllAvailable())) == json.dumps(fresh)
    strict.stop()
    lax.stop()


def _rows(tasks: Sequence[Share]) -> list[Row]:
    return [row for task in tasks for range_ in task.ranges for row in range_.rows]


def test_batch_is_pinned_before_its_end_is_recorded(cluster: Cluster) -> None:
    with cluster.broker() as broker:
        create(broker, "t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
        send(broker, "t", values(500))
    source = reader(cluster, startingOffsets="earliest")
    start = source.initialOffset()
    end = source.latestOffset(start, ReadAllAvailable())
    with cluster.rewriting(**COMPACT) as broker:
        wait_until(lambda: all(kind & 4 for kind in partitions_of(broker, "t")[0].kinds))
        assert offsets_of(source, start, end) == list(range(500))
        assert "cleaned" in end
        # An offset of an old checkpoint does not contain it, and is read as it was.
        old = {name: value for name, value in end.items() if name != "cleaned"}
        assert offsets_of(source, start, old) == list(range(500))
        assert source.latestOffset(old, ReadAllAvailable()) == old
    source.stop()


def test_named_group_has_the_offsets_of_committed_batches(cluster: Cluster) -> None:
    with cluster.broker() as broker:
        send(broker, "t", values(10))
        source = reader(cluster, startingOffsets="earliest", kafka__group__id="g")
        start = source.initialOffset()
        end = source.latestOffset(start, ReadAllAvailable())
        assert source.latestOffset(end, ReadAllAvailable()) == end
        groups = broker.broker.replica.state.groups.by_id

        def committed() -> list[int]:
            return [offset.offset for _, _, offset in groups["g"].each_offset()]

        wait_until(lambda: "g" in groups and committed() == [10])
        source.stop()


def test_deleted_topic_ends_the_query_or_is_skipped(cluster: Cluster) -> None:
    with cluster.broker() as broker:
        create(broker, "t1")
        create(broker, "t2")
        strict = reader(cluster, subscribePattern="t.*", startingOffsets="earliest")
        lax = reader(
            cluster, subscribePattern="t.*", startingOffsets="earliest", failOnDataLoss="false"
        )
        start = strict.initialOffset()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics(["t2"])["t2"].result(30)
        with pytest.raises(Exception, match="the topic was deleted"):
            strict.latestOffset(start, ReadAllAvailable())
        assert len(lax.latestOffset(start, ReadAllAvailable())["next"]) == 1
        strict.stop()
        lax.stop()


def test_log_with_fewer_records_than_were_read_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    with cluster.broker() as broker:
        create(broker, "t")
        send(broker, "t", values(10))
    shutil.copytree(tmp_path / "store", tmp_path / "backup")
    with cluster.broker() as broker:
        send(broker, "t", values(10))
    before = reader(cluster, startingOffsets="earliest")
    end = before.latestOffset(before.initialOffset(), ReadAllAvailable())
    before.stop()
    shutil.rmtree(tmp_path / "store")
    shutil.copytree(tmp_path / "backup", tmp_path / "store")
    with cluster.broker() as broker:
        send(broker, "t", values(5))

    after = reader(cluster, failOnDataLoss="false")
    with pytest.raises(Conflict, match="t-0 ends at offset 15, and was read to 20"):
        after.latestOffset(end, ReadAllAvailable())
    after.stop()


def test_restarted_query_continues(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, checkpoint: Path
) -> None:
    """One query of Spark's own, run three times: available now, bounded, lag published."""

    def run() -> list[int]:
        source = stream(spark, cluster, startingOffsets="earliest", maxOffsetsPerTrigger=40).load()
        writer = source.select("partition", "offset", "value").writeStream.format("parquet")
        query = run_all(
            writer.queryName("restarted")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.exception() is None
        return [progress.numInputRows for progress in query.recentProgress]

    with cluster.broker() as broker:
        create(broker, "t", 2)
        send(broker, "t", values(100, partitions=2))
        listener = publish_lag(spark, store=cluster.store, group="restarted-group")
        assert sum(run()) == 100
        send(broker, "t", values(60, partitions=2))
        assert sum(run()) == 60
        assert sum(run()) == 0
        rows = spark.read.parquet(str(tmp_path / "out")).select("partition", "offset").collect()
        assert sorted(map(tuple, rows)) == [(p, o) for p in range(2) for o in range(80)]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})

        def published() -> list[int]:
            asked = ConsumerGroupTopicPartitions("restarted-group")
            [future] = admin.list_consumer_group_offsets([asked]).values()
            return [partition.offset for partition in future.result(30).topic_partitions]

        wait_until(lambda: published() == [80, 80])
        listener.close()


def test_batch_only_option_is_refused_in_a_stream(spark: SparkSession, cluster: Cluster) -> None:
    with cluster.broker() as broker:
        send(broker, "t", values(1))
    source = stream(spark, cluster, latestPerKey="true").load()
    query = source.writeStream.format("noop").trigger(availableNow=True).start()
    with pytest.raises(PySparkException, match="latestPerKey: for batches alone"):
        query.awaitTermination(60)
