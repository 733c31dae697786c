"""Topics as DataFrames, with every broker stopped."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException

from rookery.spark.schema import COLUMNS
from rookery.testing.backends import ProxyThread
from rookery.testing.seaweed import SeaweedServer
from tests.direct.logs import BASE, Cluster, Sent, create, send, send_aborted, values
from tests.spark.logs import load, name_cluster, options_of
from tests.spark.logs import stream as streamed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 3_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Return a cluster with segments and, after them, extents; all brokers are stopped."""
    cluster = Cluster(tmp_path_factory.mktemp("read"))
    rows = values(ROWS, partitions=3)
    with cluster.broker() as broker:
        create(broker, "t", 3)
        create(broker, "other")
        send(broker, "other", values(10))
        send(broker, "t", rows[:2_000], settings={"compression.type": "lz4"})
        send_aborted(broker, "t", [Sent(b"bad")], "bad")
    cluster.rewrite()
    with cluster.broker() as broker:
        send(broker, "t", rows[2_000:])
    return cluster


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(
        (row.partition, row.offset, bytes(row.key), bytes(row.value), _ms(row.timestamp))
        for row in frame.collect()
    )


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def expected() -> list[tuple[Any, ...]]:
    rows, next_offsets = [], [0, 0, 0]
    for number, row in enumerate(values(ROWS, partitions=3)):
        if number == 2_000:
            next_offsets[0] += 2  # the aborted record and its marker
        offset = next_offsets[row.partition]
        next_offsets[row.partition] += 1
        rows.append((row.partition, offset, row.key, row.value, row.timestamp))
    return sorted(rows)


def test_schema_equals_that_of_the_kafka_source(spark: SparkSession, cluster: Cluster) -> None:
    kinds = load(spark, cluster, includeHeaders="true").dtypes
    assert kinds == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]


def test_all_committed_records_are_read(spark: SparkSession, cluster: Cluster) -> None:
    frame = load(spark, cluster)
    assert rows_of(frame) == expected()
    assert {row.topic for row in frame.select("topic").distinct().collect()} == {"t"}
    both = load(spark, cluster, kafka__isolation__level="read_uncommitted")
    assert both.count() == ROWS + 1


def test_topics_are_selected_by_name_pattern_and_partition(
    spark: SparkSession, cluster: Cluster
) -> None:
    assert load(spark, cluster, subscribe="t,other").count() == ROWS + 10
    assert load(spark, cluster, subscribePattern="oth.*").count() == 10
    assert load(spark, cluster, assign=json.dumps({"t": [1]})).count() == ROWS // 3
    with pytest.raises(PySparkException, match="there is no topic nix"):
        load(spark, cluster, subscribe="nix").count()


def test_range_is_bounded_by_offset_and_by_time(spark: SparkSession, cluster: Cluster) -> None:
    begin = json.dumps({"t": {"0": 5, "1": -2, "2": 998}})
    end = json.dumps({"t": {"0": 7, "1": 1, "2": -1}})
    rows = load(spark, cluster, startingOffsets=begin, endingOffsets=end)
    assert [row[:2] for row in rows_of(rows)] == [(0, 5), (0, 6), (1, 0), (2, 998), (2, 999)]
    for starts, ends, why in (
        ({"0": 1_003, "1": 0, "2": 0}, {}, "t-0 starts at 1003, after its end, 1002"),
        ({"0": 8, "1": 0, "2": 0}, {"0": 7, "1": -1, "2": -1}, "t-0 starts at 8, after its end, 7"),
    ):
        given = {"startingOffsets": json.dumps({"t": starts})}
        given |= {"endingOffsets": json.dumps({"t": ends})} if ends else {}
        with pytest.raises(PySparkException, match=why):
            load(spark, cluster, **given).count()
    by_time = load(spark, cluster, startingTimestamp=BASE + 100, endingTimestamp=BASE + 130)
    assert sorted(row[4] - BASE for row in rows_of(by_time)) == list(range(100, 130))
    each = {"t": {"0": BASE + 2_990, "1": BASE, "2": BASE}}
    late = load(
        spark, cluster, startingOffsetsByTimestamp=json.dumps(each), endingTimestamp=BASE + 3
    )
    assert sorted(row[4] - BASE for row in rows_of(late)) == [1, 2]
    with pytest.raises(PySparkException, match="no record at"):
        load(spark, cluster, startingTimestamp=BASE + 99_999_999).count()
    assert not load(
        spark,
        cluster,
        startingTimestamp=BASE + 99_999_999,
        startingOffsetsByTimestampStrategy="latest",
    ).count()


def test_columns_are_selected_by_schema_and_by_option(
    spark: SparkSession, cluster: Cluster
) -> None:
    some = (
        spark.read.format("rookery")
        .options(**options_of(cluster))
        .schema("offset long, timestamp timestamp")
        .load()
    )
    assert some.columns == ["offset", "timestamp"]
    assert some.count() == ROWS
    chosen = load(spark, cluster, columns="value,topic")
    assert {row.topic for row in chosen.collect()} == {"t"}
    with pytest.raises(PySparkException, match="is bigint, not string"):
        spark.read.format("rookery").options(**options_of(cluster)).schema(
            "offset string"
        ).load().count()


def test_headers_are_read(spark: SparkSession, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("t", b"1", headers=[("a", b"x"), ("a", None)])
        producer.produce("t", b"2")
        producer.flush(30)
    first, second = load(spark, cluster, includeHeaders="true").orderBy("offset").collect()
    assert [(h.key, h.value and bytes(h.value)) for h in first.headers] == [
        ("a", b"x"),
        ("a", None),
    ]
    assert second.headers is None


def test_topic_without_records_gives_an_empty_frame(spark: SparkSession, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        create(broker, "t", 2)
    assert not load(spark, cluster).collect()


def test_requested_number_of_partitions_is_planned(spark: SparkSession, cluster: Cluster) -> None:
    assert load(spark, cluster).rdd.getNumPartitions() == 1
    frame = load(spark, cluster, maxRecordsPerPartition=500)
    assert frame.rdd.getNumPartitions() >= 6
    assert rows_of(frame) == expected()
    assert rows_of(load(spark, cluster, minPartitions=4)) == expected()


def test_unknown_options_are_refused(spark: SparkSession, cluster: Cluster) -> None:
    with pytest.raises(PySparkException, match="did you mean startingOffsets"):
        load(spark, cluster, startingOfsets="earliest")


def test_sql_reads_a_topic(spark: SparkSession, cluster: Cluster) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW rookery_view USING rookery "
        f"OPTIONS (store '{cluster.store}', subscribe 't')"
    )
    [row] = spark.sql("SELECT count(*) AS n, max(offset) AS top FROM rookery_view").collect()
    assert (row.n, row.top) == (ROWS, 1_001)
    spark.catalog.dropTempView("rookery_view")


def test_sql_reads_and_inserts(spark: SparkSession, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        create(broker, "t")
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW rookery_both USING rookery OPTIONS "
        f"(store '{cluster.store}', subscribe 't', topic 't', columns 'key,value')"
    )
    spark.sql("INSERT INTO rookery_both VALUES (binary('k'), binary('v')), (null, binary('w'))")
    rows = spark.sql("SELECT string(key), string(value) FROM rookery_both").collect()
    assert [tuple(row) for row in rows] == [("k", "v"), (None, "w")]
    spark.catalog.dropTempView("rookery_both")


def test_sql_tables_are_read_and_inserted_into(spark: SparkSession, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        create(broker, "t", 2)
    given = f"(store '{cluster.store}', subscribe 't')"
    try:
        spark.sql(f"CREATE TABLE rookery_table USING rookery OPTIONS {given}")
        spark.sql("INSERT INTO rookery_table (key, value) VALUES (binary('k'), binary('v'))")
        spark.sql("INSERT INTO rookery_table (value, partition) SELECT binary('w'), 1")
        rows = spark.sql(
            "SELECT string(key), string(value), partition, offset FROM rookery_table WITH "
            "(assign = '{\"t\": [1]}', subscribe = '')"
        ).collect()
        assert [tuple(row)[1:] for row in rows if row.key is None] == [("w", 1, rows[-1].offset)]
        assert spark.table("rookery_table").count() == 2
        assert spark.table("rookery_table").columns == list(COLUMNS)
        stream = spark.readStream.option("startingOffsets", "earliest").table("rookery_table")
        query = stream.writeStream.format("memory").queryName("rookery_memory")
        query.trigger(availableNow=True).start().awaitTermination()
        assert spark.table("rookery_memory").count() == 2
        # Rows read from the table and written elsewhere go there, though their columns name it.
        copied = spark.table("rookery_table").select("key", "value")
        place = {"store": cluster.store, "topic": "copy", "createTopic": "1"}
        copied.write.format("rookery").mode("append").options(**place).save()
        assert load(spark, cluster, subscribe="copy").count() == 2
        assert spark.table("rookery_table").count() == 2
        with pytest.raises(PySparkException, match="column offset: the log gives it"):
            spark.sql("INSERT INTO rookery_table (value, offset) VALUES (binary('w'), 7)")
        with pytest.raises(PySparkException, match="a topic is appended to"):
            spark.sql("INSERT OVERWRITE rookery_table (value) VALUES (binary('w'))")
    finally:
        spark.sql("DROP TABLE IF EXISTS rookery_table")


def test_table_without_its_options_is_refused_with_a_remedy(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="say which topic it is"):
        spark.sql("CREATE TABLE rookery_none USING rookery")
    spark.sql("CREATE TABLE rookery_columns (value binary) USING rookery OPTIONS (subscribe 't')")
    try:
        with pytest.raises(PySparkException, match="without a list of columns"):
            spark.sql("SELECT * FROM rookery_columns").collect()
    finally:
        spark.sql("DROP TABLE rookery_columns")


def test_records_can_be_ordered_by_time_or_reduced_to_the_latest_per_key(
    spark: SparkSession, cluster: Cluster
) -> None:
    ordered = load(spark, cluster, orderBy="timestamp", minPartitions=4, columns="timestamp,offset")
    times = [_ms(row.timestamp) for row in ordered.collect()]
    assert times == sorted(times)
    assert len(times) == ROWS
    latest = rows_of(load(spark, cluster, latestPerKey="true"))
    assert latest == sorted({(row[0], row[2]): row for row in expected()}.values())


def test_filters_are_pushed_down_when_enabled(spark: SparkSession, cluster: Cluster) -> None:
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "true")
    try:
        frame = load(spark, cluster, pushdown="true")
        some = frame.where("partition = 1 AND offset >= 10 AND offset < 20 AND topic = 't'")
        assert [row[:2] for row in rows_of(some)] == [(1, offset) for offset in range(10, 20)]
        since = datetime.fromtimestamp((BASE + 2_900) / 1000, UTC)
        late = frame.where(frame.timestamp >= since)
        assert rows_of(late) == [row for row in expected() if row[4] >= BASE + 2_900]
        assert not frame.where("topic = 'x'").count()
        # Filters of one query, or of one side of it, do not affect another.
        assert frame.count() == ROWS
        both = frame.where("partition = 1").union(frame.where("partition = 2"))
        assert both.count() == ROWS * 2 // 3
    finally:
        spark.conf.unset(setting)


def test_deleted_records_fail_are_skipped_or_reported(spark: SparkSession, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        send(broker, "t", values(50))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        [done] = admin.delete_records([TopicPartition("t", 0, 30)]).values()
        done.result(30)
    start = json.dumps({"t": {"0": 10}})
    with pytest.raises(PySparkException, match="t-0 offsets 10 to 29: the log begins at 30"):
        load(spark, cluster, startingOffsets=start).count()
    assert load(spark, cluster, startingOffsets=start, failOnDataLoss="false").count() == 20
    gaps = tmp_path / "gaps"
    load(spark, cluster, startingOffsets=start, onDataLoss="report", gapsTo=gaps).count()
    [file] = gaps.iterdir()
    assert json.loads(file.read_text())["end"] == 30


def test_local_folder_is_read(spark: SparkSession, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, is_local=True)
    with cluster.broker() as broker:
        send(broker, "t", values(100))
        assert load(spark, cluster).count() == 100
    assert load(spark, cluster).count() == 100


def test_s3_is_read_without_hadoop(
    spark: SparkSession, spark_clusters: Path, tmp_path: Path, seaweed: SeaweedServer
) -> None:
    cluster = Cluster(tmp_path, store=seaweed.url("ready/logs"))
    with cluster.broker() as broker:
        send(broker, "t", values(500))
    cluster.rewrite()
    named = name_cluster(spark_clusters, "read-s3", cluster.store)
    assert load(spark, named).count() == 500
    with pytest.raises(PySparkException, match=r"store: has a secret .*cluster=NAME") as refused:
        load(spark, cluster).count()
    assert seaweed.url("").partition("secret_access_key=")[2] not in str(refused.value)


def test_reading_lists_and_writes_nothing_and_takes_few_requests(
    spark: SparkSession, spark_clusters: Path, tmp_path: Path, seaweed: SeaweedServer
) -> None:
    with ProxyThread(seaweed.port) as counting:
        cluster = Cluster(tmp_path, store=seaweed.url("ready/counted"))
        with cluster.broker(inline_bytes=0) as broker:
            send(broker, "t", values(2_000))
        cluster.rewrite()
        store = seaweed.url("ready/counted", counting.endpoint)
        seen = name_cluster(spark_clusters, "read-counted", store)
        asked = counting.proxy.requests
        assert load(spark, seen).count() == 2_000
        # The planner and each task open the log; then come the segments themselves.
        assert asked["GET"] <= 100
        stream = streamed(spark, seen, startingOffsets="earliest").load()
        query = (
            stream.writeStream.format("memory")
            .queryName("counted")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(240)
        assert spark.table("counted").count() == 2_000
        assert (asked["LIST"], asked["PUT"], asked["DELETE"]) == (0, 0, 0)
