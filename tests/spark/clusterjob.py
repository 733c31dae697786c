"""A program for a cluster: run by `rookery spark submit`, in the packed environment alone.

It writes what it found to a file as JSON. It must not import anything of the tests.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.direct.place import ClusterAddress
from rookery.errors import ConfigError
from rookery.jobs import compact, scrub
from rookery.pipeline.declaration.load import load
from rookery.pipeline.run import BatchPace, run_pipeline
from rookery.spark import session
from rookery.spark.checkpoint import check_checkpoint, master_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CLUSTER = "tests"
"""The name in the rookery.toml that is sent along."""
PIPELINE = "pipeline.toml"
"""The file in the driver's folder that declares a pipeline."""


def main(folder: str) -> None:
    """Look at the workers, then read topics, write them and keep them in shape with these.

    Args:
        folder: for the answer, and for checkpoints: the only one that all hosts share.
    """
    spark = session("cluster")
    answer: dict[str, object] = {"master": master_of(spark), "workers": _workers(spark)}
    answer["refused"] = _refused(spark)
    _copy_stream(spark, folder)
    _copy_batch(spark)
    answer["pipeline"] = _run_pipeline(spark, folder)
    answer["jobs"] = _run_jobs(spark)
    for topic in ("birds", "streamed", "batched", "silver", "kept"):
        answer[topic] = _rows(spark, topic)
    Path(folder, "answer.json").write_text(json.dumps(answer))
    spark.stop()


def _copy_stream(spark: SparkSession, folder: str) -> None:
    """Copy a topic to another as a stream, in more than one batch."""
    rows = spark.readStream.format("rookery").options(
        cluster=CLUSTER, subscribe="birds", startingOffsets="earliest", maxOffsetsPerTrigger="200"
    )
    query = (
        rows.load()
        .select("key", "value", "partition")
        .writeStream.format("rookery")
        .options(cluster=CLUSTER, topic="streamed", sinkId="streamed")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _copy_batch(spark: SparkSession) -> None:
    rows = spark.read.format("rookery").options(cluster=CLUSTER, subscribe="birds").load()
    target = {"cluster": CLUSTER, "topic": "batched", "createTopic": "2"}
    rows.select("key", "value").write.format("rookery").options(**target).mode("append").save()


def _run_pipeline(spark: SparkSession, folder: str) -> list[dict[str, int]]:
    """Run the declared pipeline to the end of its topic; return the rows of each batch."""
    batches: list[dict[str, int]] = []
    run_pipeline(
        spark,
        load(Path(folder, PIPELINE)),
        BatchPace(is_available_now=True),
        lambda metrics: batches.append(dict(metrics.rows)),
    )
    return batches


def _run_jobs(spark: SparkSession) -> dict[str, dict[str, object]]:
    """Compact a topic, then check everything that there is."""
    place = ClusterAddress(cluster=CLUSTER)
    reports = {"compact": compact(spark, place, ["kept"]), "scrub": scrub(spark, place)}
    return {
        name: {
            "problems": job_report.problems,
            "facts": job_report.facts,
            "bytes": job_report.done_bytes,
        }
        for name, job_report in reports.items()
    }


def _rows(spark: SparkSession, topic: str) -> list[list[object]]:
    rows = spark.read.format("rookery").options(cluster=CLUSTER, subscribe=topic).load()
    chosen = rows.selectExpr("partition", "offset", "cast(key as string)", "cast(value as string)")
    return sorted(list(row) for row in chosen.collect())


def _refused(spark: SparkSession) -> str:
    """Return why a checkpoint is refused that is not declared as shared."""
    try:
        check_checkpoint("/somewhere", master=master_of(spark))
    except ConfigError as error:
        return str(error)
    return ""


def _workers(spark: SparkSession) -> list[dict[str, object]]:
    def look(_: Iterable[int]) -> Iterator[dict[str, object]]:
        import pyarrow  # noqa: PLC0415

        import rookery  # noqa: PLC0415
        from rookery.native import report  # noqa: PLC0415
        from rookery.records import columns, kernel  # noqa: F401, PLC0415

        yield {
            "folder": str(Path.cwd()),
            "rookery": str(Path(rookery.__file__).parent),
            "pyarrow": str(Path(pyarrow.__file__).parent),
            "native": {status.native: status.is_compiled for status in report()},
        }

    # A barrier makes both workers take part, however quick the first one is.
    parts = spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(look)
    return parts.collect()


if __name__ == "__main__":
    main(*sys.argv[1:])
