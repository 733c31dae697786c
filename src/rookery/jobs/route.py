"""Where each record goes: to which topic, and to which of its partitions.

It is decided by the record and its place alone, never by chance, so that a slice that is done again
goes the same way.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rookery.jobs.proof import spread

# Records without a key stay together in runs of so many offsets: few and large batches.
_RUN_OFFSETS: Final = 1000

Numbers = npt.NDArray[np.int32]


class TopicRoute(NamedTuple):
    """The way from topics to topics."""

    targets: dict[str, str]
    """The topic that each topic's records go to."""
    counts: dict[str, int]
    """How many partitions those have."""
    by: Literal["key", "partition"] = "key"
    """By the key, as Java's producer does it, or each to the partition of the same number."""

    def send(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows as records of their new topics, with the partition of each.

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
