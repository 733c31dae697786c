"""How far a stream goes at once: not beyond so many records, or so many bytes.

Each partition gets its share of the bound by what it has to offer, so that none is left behind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from rookery.cluster.state.partition import Partition
from rookery.direct.plan import rows_of

Key = tuple[bytes, int]
"""Topic id and partition."""


def by_records(begins: Mapping[Key, int], ends: Mapping[Key, int], limit: int) -> dict[Key, int]:
    """Return ends for about `limit` records in all."""
    sizes = {key: max(0, ends[key] - begins[key]) for key in ends}
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    found = {}
    for key, size in sizes.items():
        share = limit * size / total
        # A partition with little to offer must not wait for ever.
        step = math.ceil(share) if share < 1 else math.floor(share)
        found[key] = min(ends[key], begins[key] + step)
    return found


def by_bytes(
    partitions: Mapping[Key, Partition],
    begins: Mapping[Key, int],
    ends: Mapping[Key, int],
    limit: int,
) -> dict[Key, int]:
    """Return ends for about `limit` bytes in all, but at least one record where there is one."""
    sizes = {key: size_of(partitions[key], begins[key], ends[key]) for key in ends}
    total = sum(sizes.values())
    if total <= limit:
        return dict(ends)
    return {
        key: _within(partitions[key], begins[key], ends[key], limit * sizes[key] / total)
        for key in ends
    }


def size_of(partition: Partition, begin: int, end: int) -> float:
    """Return about how many bytes some offsets take up."""
    if begin >= end:
        return 0
    return sum(
        row.size * _share(row.base_offset, row.end_offset, begin, end)
        for row in rows_of(partition, begin, end)
    )


def _within(partition: Partition, begin: int, end: int, limit: float) -> int:
    """Return the offset up to which there are about so many bytes."""
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
