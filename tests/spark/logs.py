"""Topics for Spark to read, written by a broker that is stopped before."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.direct.logs import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamReader


class NamedCluster(NamedTuple):
    """A cluster that Spark's processes know by name: secrets are not for options."""

    name: str


def name_cluster(config: Path, name: str, store: str) -> NamedCluster:
    """Give a store a name in the file that Spark's processes read."""
    with config.open("a") as file:
        file.write(f"[clusters.{name}]\nstore = '{store}'\n")
    return NamedCluster(name)


def options_of(cluster: Cluster | NamedCluster, **options: Any) -> dict[str, str]:
    """Return the options that name a cluster, and others; `__` in a name stands for a dot."""
    if isinstance(cluster, NamedCluster):
        place = {"cluster": cluster.name}
    else:
        place = {"store": cluster.store} if cluster.store else {"data": str(cluster.folder)}
    given = {name.replace("__", "."): str(value) for name, value in options.items()}
    if not given.keys() & {"subscribe", "subscribePattern", "assign"}:
        given["subscribe"] = "t"
    return {**place, **given}


def load(spark: SparkSession, cluster: Cluster | NamedCluster, **options: Any) -> DataFrame:
    """Read a topic as a batch."""
    return spark.read.format("rookery").options(**options_of(cluster, **options)).load()


def stream(
    spark: SparkSession, cluster: Cluster | NamedCluster, **options: Any
) -> DataStreamReader:
    """Read a topic as a stream."""
    return spark.readStream.format("rookery").options(**options_of(cluster, **options))


def run_all(query: StreamingQuery) -> StreamingQuery:
    """Wait for a query that ends by itself."""
    assert query.awaitTermination(120), "the query does not end"
    return query
