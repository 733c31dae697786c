"""The extension of Spark's planner by which each query is planned again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from rookery.spark import planner
from rookery.spark.planner import (
    PLAN_PER_QUERY,
    PLAN_PER_QUERY_SETTING,
    Extension,
    extend_planner,
)
from rookery.spark.tuning import rowsonce
from tests.direct.logs import Cluster, create, planned, send, values
from tests.spark.logs import load, options_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 900
ROWS_ONCE = cast(Extension, rowsonce.TUNING.extension)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Return a cluster with one topic; its broker is stopped."""
    cluster = Cluster(tmp_path_factory.mktemp("once"))
    with cluster.broker() as broker:
        create(broker, "t", 3)
        send(broker, "t", values(ROWS, partitions=3))
    return cluster


def added(spark: SparkSession) -> list[int]:
    """Return how many optimizations and strategies a session adds to Spark's own."""
    methods = spark._jsparkSession.experimental()
    return [methods.extraOptimizations().size(), methods.extraStrategies().size()]


def test_every_query_reads_the_records_present_at_its_start(
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
        payloads = [-payload for payload in _payloads(cluster)]

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
        return {
            row.object_id for range_ in planned(log) for row in range_.rows if row.object_id < 0
        }


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


def test_planner_extension_is_installed_once(spark: SparkSession) -> None:
    other = spark.newSession()
    assert added(other) == [0, 0]
    extend_planner(other)
    extend_planner(other)
    assert added(other) == [1, 0]


def test_planner_extension_can_be_switched_off(spark: SparkSession) -> None:
    other = spark.newSession()
    other.conf.set(PLAN_PER_QUERY_SETTING, "false")
    extend_planner(other)
    assert added(other) == [0, 0]


def test_session_without_java_is_not_extended() -> None:
    remote = SimpleNamespace(conf={})  # what of a Connect session is looked at
    extend_planner(cast("SparkSession", remote))
    assert not hasattr(remote, "_jsparkSession")


def test_incompatible_spark_is_reported_and_works_without_the_extension(
    spark: SparkSession, cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    extensions = [PLAN_PER_QUERY, ROWS_ONCE]
    for extension in extensions:
        text = f"class {extension.name} extends org.apache.spark.Gone {{}}"
        (tmp_path / f"{extension.name}.java").write_text(text)
    monkeypatch.setattr(planner, "files", lambda _: tmp_path)
    other = spark.newSession()
    with pytest.warns(RuntimeWarning) as warned:
        extend_planner(other, [ROWS_ONCE])
    for message, added in zip(warned, extensions, strict=True):
        assert str(message.message).startswith(f"Spark {spark.version} {added.without}: ")
    assert load(other, cluster).count() == ROWS
