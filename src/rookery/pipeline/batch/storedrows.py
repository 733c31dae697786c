"""Rows of a batch that tasks read directly from the log.

A DataFrame of the source would pass each row from Python to Java and back, because tasks are also
Python. Here Spark receives only the numbers of the shares, and no row passes through Java.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from rookery.direct.place import check_host
from rookery.pipeline.batch.engine import Work
from rookery.spark.read.batchread import Share, read_ranges
from rookery.spark.read.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The records of planned shares, one share per task."""

    spark: SparkSession
    options: ReadOptions
    shares: Sequence[Share]

    def mapInArrow(self, work: Work, schema: str, /) -> DataFrame:  # noqa: N802 (Spark's name)
        """Return the results of applying `work` to the records of each share."""
        count = len(self.shares)
        numbers = self.spark.range(0, count, 1, max(count, 1))
        # Every task receives all shares, but unpickles only its own.
        shares = [pickle.dumps(share) for share in self.shares]
        return numbers.mapInArrow(_Task(self.options, shares, work), schema)


@dataclass(frozen=True, slots=True)
class _Task:
    options: ReadOptions
    shares: Sequence[bytes]
    work: Work

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.work(self._rows(numbers))

    def _rows(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column("id").to_numpy():
                share: Share = pickle.loads(self.shares[number])  # noqa: S301 (our own)
                check_host(self.options.place, share.host)
                yield from read_ranges(self.options, share.ranges)
