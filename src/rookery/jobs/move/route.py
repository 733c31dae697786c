"""Decides the target topic and partition of each record.

The decision depends only on the record and its position, never on chance, so a repeated slice takes
the same route.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rookery.jobs.proof import spread

# Records without a key stay together in runs of this many offsets: few, large batches.
_RUN_OFFSETS: Final = 1000

Numbers = npt.NDArray[np.int32]


class TopicRoute(NamedTuple):
    """The mapping from topics to topics."""

    targets: dict[str, str]
    """The target topic of each source topic."""
    counts: dict[str, int]
    """The number of partitions of each target."""
    by: Literal["key", "partition"] = "key"
    """By the key, as in Java's producer, or to the partition with the same number."""

    def send(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows as records of their target topics, with the partition of each.

        They must have the columns topic, partition, offset, timestamp, key, value and headers.
        """
        column: Any = batch.column("topic")
        codes = column.indices.to_numpy()
        names = [self.targets[name] for name in column.dictionary.to_pylist()]
        topics = pa.array(names, pa.string()).take(column.indices)
        counts = np.array([self.counts[name] for name in names], np.int32)[codes]
        columns: dict[str, Any] = {
            "topic": topics,
            "partition": pa.array(self._partitions(batch, counts)),
            **{name: batch.column(name) for name in ("key", "value", "headers", "timestamp")},
        }
        return pa.record_batch(columns)

    def _partitions(self, batch: pa.RecordBatch, counts: Numbers) -> Numbers:
        own: Numbers = batch.column("partition").to_numpy()
        if self.by == "partition":
            return own
        keys = batch.column("key")
        chosen = np.zeros(len(keys), np.int32)
        for count in np.unique(counts).tolist():
            chosen = np.where(counts == count, spread(keys, count), chosen)
        if keys.null_count:
            runs = (batch.column("offset").to_numpy() // _RUN_OFFSETS + own) % counts
            is_null = keys.is_null().to_numpy(zero_copy_only=False)
            chosen = np.where(is_null, runs.astype(np.int32), chosen)
        return chosen
