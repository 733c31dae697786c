"""Counts bytes and records of every topic, into and out of this process."""

from __future__ import annotations

from collections.abc import Container
from typing import Final, NamedTuple

from rookery import metrics
from rookery.metrics import Counter, Family


class _Counts(NamedTuple):
    size: Counter
    records: Counter
    name: str


class Traffic:
    """One direction of the traffic, by topic id on the hot path and by name in the metrics."""

    def __init__(self, sizes: Family[Counter], records: Family[Counter]) -> None:
        self._sizes = sizes
        self._records = records
        self._by_id: dict[bytes, _Counts] = {}

    def add(self, topic_id: bytes, name: str, records: int, size: int) -> None:
        """Count records of a topic and their bytes."""
        counts = self._by_id.get(topic_id)
        if counts is None:
            sizes, numbers = self._sizes.labels(name), self._records.labels(name)
            counts = self._by_id[topic_id] = _Counts(sizes, numbers, name)
        counts.size.value += size
        counts.records.value += records

    def keep(self, topic_ids: Container[bytes], names: Container[str]) -> None:
        """Remove the metrics of deleted topics."""
        for topic_id, counts in list(self._by_id.items()):
            if topic_id not in topic_ids:
                del self._by_id[topic_id]
                if counts.name not in names:
                    self._sizes.remove(counts.name)
                    self._records.remove(counts.name)


WRITTEN: Final = Traffic(
    metrics.counters(
        "rookery_log_written_bytes_total", "Bytes of batches committed here, by topic.", ("topic",)
    ),
    metrics.counters(
        "rookery_log_written_records_total", "Records committed here, by topic.", ("topic",)
    ),
)
READ: Final = Traffic(
    metrics.counters(
        "rookery_log_read_bytes_total", "Bytes of batches sent to readers, by topic.", ("topic",)
    ),
    metrics.counters(
        "rookery_log_read_records_total", "Records sent to readers, by topic.", ("topic",)
    ),
)
