"""Rows that tasks read themselves: the same as those of a DataFrame, share by share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from rookery.pipeline.batch.storedrows import StoredRows
from rookery.spark.read.batchread import BatchReader
from rookery.spark.read.options import ReadOptions
from rookery.spark.schema import ALL_COLUMNS, spark_schema
from tests.direct.logs import Cluster, Sent, create, send, send_aborted, values
from tests.spark.logs import load, options_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 1_200


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    """Return a cluster with segments, extents and an aborted transaction; its broker is stopped."""
    cluster = Cluster(tmp_path_factory.mktemp("stored"))
    with cluster.broker() as broker:
        create(broker, "t", 3)
        send(broker, "t", values(ROWS, partitions=3))
        send_aborted(broker, "t", [Sent(b"bad")], "bad")
    cluster.rewrite()
    with cluster.broker() as broker:
        send(broker, "t", values(300, partitions=3))
    return cluster


def stored(spark: SparkSession, cluster: Cluster, **options: Any) -> StoredRows:
    given = ReadOptions.of(options_of(cluster, includeHeaders="true", **options))
    return StoredRows(spark, given, BatchReader(given).partitions())


def as_they_are(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def count_each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the number of rows that a task got."""
    yield pa.RecordBatch.from_pydict({"rows": [sum(batch.num_rows for batch in batches)]})


@pytest.mark.parametrize("tasks", [1, 4])
def test_stored_rows_equal_those_of_the_source(
    spark: SparkSession, cluster: Cluster, tasks: int
) -> None:
    rows = stored(spark, cluster, minPartitions=tasks)
    schema = spark_schema(ALL_COLUMNS).simpleString()

    read = sorted(map(str, rows.mapInArrow(as_they_are, schema).collect()))

    assert read == sorted(map(str, load(spark, cluster, includeHeaders="true").collect()))
    assert len(read) == ROWS + 300


def test_each_share_is_one_task(spark: SparkSession, cluster: Cluster) -> None:
    rows = stored(spark, cluster, maxRecordsPerPartition=200)
    counts = [row.rows for row in rows.mapInArrow(count_each, "rows long").collect()]
    assert len(counts) == len(rows.shares) >= 8
    assert max(counts) <= 200
    assert sum(counts) == ROWS + 300


def test_no_share_gives_no_task(spark: SparkSession, cluster: Cluster) -> None:
    rows = replace(stored(spark, cluster), shares=[])
    assert not rows.mapInArrow(count_each, "rows long").collect()


def test_a_folder_of_another_host_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, is_local=True)
    with cluster.broker() as broker:
        create(broker, "t")
        send(broker, "t", values(3))
    rows = stored(spark, cluster)
    elsewhere = replace(rows, shares=[replace(share, host="another") for share in rows.shares])
    with pytest.raises(PySparkException, match="cluster log is a file of the driver's host"):
        elsewhere.mapInArrow(count_each, "rows long").collect()
