"""Runs the tasks of an upsert on executors; tasks and results are pickled."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from rookery.spark.failures import own_errors
from rookery.tables.port import Run, TableTask, here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TASKS: Final = "at int, task binary"
_RESULTS: Final = "at int, result binary"
_SMALL_BYTES: Final = 16 << 20
"""Below this size, tasks finish in this process before a job on executors would start."""
_MAX_PARTITIONS: Final = 1000


def on_spark(spark: SparkSession, small_bytes: int = _SMALL_BYTES) -> Run:
    """Return a function that runs tasks on Spark's executors, if they are large enough."""

    def run(tasks: Sequence[TableTask]) -> list[Any]:
        if len(tasks) < 2 or sum(task.bytes for task in tasks) < small_bytes:
            return here(tasks)
        rows = [(at, bytearray(pickle.dumps(task))) for at, task in enumerate(tasks)]
        frame = spark.createDataFrame(rows, _TASKS)
        frame = frame.repartition(min(len(rows), _MAX_PARTITIONS), "at")
        with own_errors():
            results = frame.mapInArrow(_run_all, _RESULTS).collect()
        return [pickle.loads(row.result) for row in sorted(results, key=lambda row: row.at)]  # noqa: S301 (our own)

    return run


def _run_all(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for row in batch.to_pylist():
            result = pickle.dumps(pickle.loads(row["task"])())  # noqa: S301 (our own)
            yield pa.RecordBatch.from_pydict(
                {"at": pa.array([row["at"]], pa.int32()), "result": pa.array([result], pa.binary())}
            )
