"""Limits the size of a stream's batch to a number of records or bytes.

Each partition gets a share of the limit in proportion to its available data, so none starves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from rookery.cluster.state.partition import Partition
from rookery.log.read.rangeplan import rows_of

Key = tuple[bytes, int]
"""Topic id and partition."""


def by_records(begins: Mapping[Key, int], ends: Mapping[Key, int], limit: int) -> dict[Key, int]:
    """Return end offsets for about `limit` records in total."""
    sizes = {key: max(0, ends[key] - begins[key]) for key in ends}
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    until = {}
    for key, size in sizes.items():
        share = limit * size / total
        # A partition with little data must not wait forever.
        step = math.ceil(share) if share < 1 else math.floor(share)
        until[key] = min(ends[key], begins[key] + step)
    return until


def by_bytes(
    partitions: Mapping[Key, Partition],
    begins: Mapping[Key, int],
    ends: Mapping[Key, int],
    limit: int,
) -> dict[Key, int]:
    """Return end offsets for about `limit` bytes in total, with at least one record if any."""
    sizes = {key: size_of(partitions[key], begins[key], ends[key]) for key in ends}
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    return {
        key: _within(partitions[key], begins[key], ends[key], limit * sizes[key] / total)
        for key in ends
    }


def size_of(partition: Partition, begin: int, end: int) -> float:
    """Return the approximate size in bytes of an offset range."""
    if begin >= end:
        return 0
    return sum(
        row.size * _share(row.base_offset, row.end_offset, begin, end)
        for row in rows_of(partition, begin, end)
    )


def _within(partition: Partition, begin: int, end: int, limit: float) -> int:
    """Return the end offset of about `limit` bytes."""
    left = limit
    for row in rows_of(partition, begin, end):
        first, last = max(row.base_offset, begin), min(row.end_offset, end)
        size = row.size * _share(row.base_offset, row.end_offset, first, last)
        if size > left:
            step = int((last - first) * left / size)
            return max(first + step, min(begin + 1, end))
        left -= size
    return end


def _share(base: int, stop: int, begin: int, end: int) -> float:
    return (min(stop, end) - max(base, begin)) / (stop - base)
