"""Topics for Spark to read: written by a broker that is stopped by then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.direct.logs import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader


def options_of(cluster: Cluster, **options: Any) -> dict[str, str]:
    """Return the options that name a cluster, and others; `__` in a name stands for a dot."""
    place = {"store": cluster.store} if cluster.store else {"data": str(cluster.folder)}
    given = {name.replace("__", "."): str(value) for name, value in options.items()}
    if not given.keys() & {"subscribe", "subscribePattern", "assign"}:
        given["subscribe"] = "t"
    return {**place, **given}


def load(spark: SparkSession, cluster: Cluster, **options: Any) -> DataFrame:
    """Read a topic as a batch."""
    return spark.read.format("rookery").options(**options_of(cluster, **options)).load()


def stream(spark: SparkSession, cluster: Cluster, **options: Any) -> DataStreamReader:
    """Read a topic as a stream."""
    return spark.readStream.format("rookery").options(**options_of(cluster, **options))


def run_all(query: StreamingQuery) -> StreamingQuery:
    """Wait for a query that ends by itself."""
    assert query.awaitTermination(120), "the query does not end"
    return query
