"""Rows that are made once: the plan is shorter, and every row is as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rookery.spark import rowsonce
from rookery.spark.rowsonce import SETTING, make_rows_once
from tests.direct.logs import Cluster, create, send, values
from tests.spark.logs import load, run_all, stream

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


def strategies(spark: SparkSession) -> Any:
    return spark._jsparkSession.experimental().extraStrategies()


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


def test_a_session_gets_it_once(spark: SparkSession) -> None:
    other = spark.newSession()
    assert strategies(other).size() == 0
    make_rows_once(other)
    make_rows_once(other)
    assert strategies(other).size() == 1


def test_it_can_be_refused(spark: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set(SETTING, "false")
    make_rows_once(other)
    assert strategies(other).size() == 0


def test_a_session_without_java_is_left_alone() -> None:
    remote = SimpleNamespace(conf={})  # what of a Connect session is looked at
    make_rows_once(cast("SparkSession", remote))
    assert not hasattr(remote, "_jsparkSession")


def test_a_spark_that_it_does_not_fit_is_told_of_and_works(
    spark: SparkSession, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "RowsOnce.java").write_text("class RowsOnce extends org.apache.spark.Gone {}")
    monkeypatch.setattr(rowsonce, "files", lambda _: tmp_path)
    other = spark.newSession()
    with pytest.warns(RuntimeWarning, match=r"Spark 4\.\S+ copies each row .* once more"):
        make_rows_once(other)
    assert load(other, cluster).count() == ROWS
