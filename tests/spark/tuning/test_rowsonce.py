"""The tuning `rows-once`: plans without a copy of each row, and with the same results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rookery.spark.planner import extend_planner
from rookery.spark.tuning.rowsonce import TUNING
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


@pytest.fixture(scope="module")
def tuned(spark: SparkSession) -> SparkSession:
    """Return a session of its own with the strategy; the shared one stays as it is."""
    assert TUNING.extension is not None
    other = spark.newSession()
    extend_planner(other, [TUNING.extension])
    return other


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().sparkPlan().toString())


def test_session_extension_is_installed_once(tuned: SparkSession) -> None:
    assert TUNING.extension is not None
    extend_planner(tuned, [TUNING.extension])
    assert tuned._jsparkSession.experimental().extraStrategies().size() == 1


def test_session_plans_no_copy_of_the_rows(
    spark: SparkSession, tuned: SparkSession, cluster: Cluster
) -> None:
    assert plan_of(load(tuned, cluster)).startswith("BatchScan rookery")
    assert plan_of(load(spark, cluster)).startswith("Project")


def test_other_projections_and_sources_are_unchanged(tuned: SparkSession, cluster: Cluster) -> None:
    assert plan_of(load(tuned, cluster).select("value")).startswith("Project [value")
    assert "Range" in plan_of(tuned.range(3).selectExpr("id + 1"))


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
def test_all_row_operations_give_the_same_results(
    spark: SparkSession, tuned: SparkSession, cluster: Cluster, use: Any
) -> None:
    results = sorted(map(str, use(load(tuned, cluster)).collect()))
    tuned.catalog.clearCache()
    expected = sorted(map(str, use(load(spark, cluster)).collect()))
    spark.catalog.clearCache()
    assert results == expected
    assert results


def test_stream_gives_the_same_results(
    spark: SparkSession, tuned: SparkSession, cluster: Cluster, checkpoint: Path
) -> None:
    rows = stream(tuned, cluster, startingOffsets="earliest", maxOffsetsPerTrigger=400).load()
    writer = rows.writeStream.format("memory").queryName("rows_once").outputMode("append")
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    run_all(query)

    plan = query._jsq.explainInternal(False)
    assert "Project" not in plan
    assert "MicroBatchScan" in plan
    results = sorted(map(str, tuned.table("rows_once").collect()))
    assert results == sorted(map(str, load(spark, cluster).collect()))
    assert len(results) == ROWS
