"""Extensions of Spark's planner: each query plans anew, and rows are made once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rookery.spark import planner
from rookery.spark.planner import EXTENSIONS, extend_planner
from tests.direct.logs import Cluster, create, planned, send, values
from tests.spark.logs import load, options_of, run_all, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 900


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Return a cluster with one topic; its broker is stopped."""
    cluster = Cluster(tmp_path_factory.mktemp("once"))
    with cluster.broker() as broker:
        create(broker, "t", 3)
        send(broker, "t", values(ROWS, partitions=3))
    return cluster


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().sparkPlan().toString())


def added(spark: SparkSession) -> list[int]:
    """Return how many extensions each hook has."""
    methods = spark._jsparkSession.experimental()
    return [getattr(methods, one.hook)().size() for one in EXTENSIONS]


@contextmanager
def as_spark_does(spark: SparkSession) -> Iterator[None]:
    """Plan as Spark itself does."""
    methods = spark._jsparkSession.experimental()
    ours = methods.extraStrategies()
    getattr(methods, "extraStrategies_$eq")(ours.empty())
    try:
        yield
    finally:
        getattr(methods, "extraStrategies_$eq")(ours)


def test_the_session_plans_no_copy_of_the_rows(spark: SparkSession, cluster: Cluster) -> None:
    assert plan_of(load(spark, cluster)).startswith("BatchScan rookery")
    with as_spark_does(spark):
        assert plan_of(load(spark, cluster)).startswith("Project")


def test_other_projections_and_other_sources_stay(spark: SparkSession, cluster: Cluster) -> None:
    assert plan_of(load(spark, cluster).select("value")).startswith("Project [value")
    assert "Range" in plan_of(spark.range(3).selectExpr("id + 1"))


@pytest.mark.parametrize(
    "use",
    [
        lambda frame: frame,
        lambda frame: frame.sort("timestamp", "value"),
        lambda frame: frame.groupBy("partition").agg({"value": "max", "offset": "sum"}),
        lambda frame: frame.join(frame.select("value", "topic"), ["value", "topic"]),
        lambda frame: frame.repartition(5, "key").where("offset % 2 = 0"),
        lambda frame: frame.where("partition = 1").limit(500),
        lambda frame: frame.union(frame).distinct(),
        lambda frame: frame.cache(),
        lambda frame: frame.mapInArrow(lambda batches: batches, frame.schema),
    ],
)
def test_all_that_can_be_done_with_rows_gives_the_same(
    spark: SparkSession, cluster: Cluster, use: Any
) -> None:
    found = sorted(map(str, use(load(spark, cluster)).collect()))
    with as_spark_does(spark):
        expected = sorted(map(str, use(load(spark, cluster)).collect()))
    spark.catalog.clearCache()
    assert found == expected
    assert found


def test_a_stream_gives_the_same(spark: SparkSession, cluster: Cluster, checkpoint: Path) -> None:
    rows = stream(spark, cluster, startingOffsets="earliest", maxOffsetsPerTrigger=400).load()
    writer = rows.writeStream.format("memory").queryName("rows_once").outputMode("append")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    run_all(query)

    plan = query._jsq.explainInternal(False)
    assert "Project" not in plan
    assert "MicroBatchScan" in plan
    found = sorted(map(str, spark.table("rows_once").collect()))
    assert found == sorted(map(str, load(spark, cluster).collect()))
    assert len(found) == ROWS


def test_every_query_reads_what_is_there_when_it_begins(
    spark: SparkSession, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker() as broker:
        create(broker, "t", 2)
        send(broker, "t", values(100, partitions=2))
        frame = load(spark, cluster)
        frame.createOrReplaceTempView("plans_view")
        spark.sql(_created("plans_table", cluster))
        collected = frame.select("partition", "offset")
        assert frame.count() == len(collected.collect()) == 100
        payloads = [-one for one in _payloads(cluster)]

        send(broker, "t", values(50, partitions=2))
        assert frame.count() == 150
        for name in ("plans_view", "plans_table"):
            assert spark.sql(f"SELECT count(*) FROM {name}").first() == (150,)  # noqa: S608
        lasts = "SELECT max(offset), (SELECT max(offset) FROM plans_view) FROM plans_view"
        assert spark.sql(lasts).first() == (74, 74)
    cluster.trim(max(payloads))
    # This one was planned before: as with Spark's own source, its offsets stay.
    assert len(collected.collect()) == 100
    assert frame.where("offset < 50").count() == 100
    spark.sql("DROP TABLE plans_table")


def _created(name: str, cluster: Cluster) -> str:
    options = ", ".join(f"'{key}' '{value}'" for key, value in options_of(cluster).items())
    return f"CREATE TABLE {name} USING rookery OPTIONS ({options})"


def _payloads(cluster: Cluster) -> set[int]:
    """Return the entries that carry batches of the topic."""
    with cluster.log as log:
        return {row.object_id for one in planned(log) for row in one.rows if row.object_id < 0}


def test_both_sides_of_a_join_read_the_same_offsets(spark: SparkSession, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    is_over = Event()

    with cluster.broker() as broker, ThreadPoolExecutor() as pool:
        send(broker, "t", values(10))

        def write() -> None:
            while not is_over.is_set():
                send(broker, "t", values(10))

        writing = pool.submit(write)
        try:
            frame = load(spark, cluster)
            seen = frame.union(frame).groupBy("partition", "offset").count()
            assert seen.where("count != 2").collect() == []
        finally:
            is_over.set()
            writing.result(30)


def test_a_session_gets_it_once(spark: SparkSession) -> None:
    other = spark.newSession()
    assert added(other) == [0, 0]
    extend_planner(other)
    extend_planner(other)
    assert added(other) == [1, 1]


def test_each_can_be_turned_off(spark: SparkSession) -> None:
    for at, extension in enumerate(EXTENSIONS):
        other = spark.newSession()
        other.conf.set(extension.setting, "false")
        extend_planner(other)
        assert added(other)[at] == 0
        assert sum(added(other)) == 1


def test_a_session_without_java_is_left_alone() -> None:
    remote = SimpleNamespace(conf={})  # what of a Connect session is looked at
    extend_planner(cast("SparkSession", remote))
    assert not hasattr(remote, "_jsparkSession")


def test_a_spark_that_it_does_not_fit_is_told_of_and_works(
    spark: SparkSession, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for one in EXTENSIONS:
        text = f"class {one.name} extends org.apache.spark.Gone {{}}"
        (tmp_path / f"{one.name}.java").write_text(text)
    monkeypatch.setattr(planner, "files", lambda _: tmp_path)
    other = spark.newSession()
    with pytest.warns(RuntimeWarning) as warned:
        extend_planner(other)
    for message, one in zip(warned, EXTENSIONS, strict=True):
        assert str(message.message).startswith(f"Spark {spark.version} {one.without}: ")
    assert load(other, cluster).count() == ROWS
