"""Rows in no segment: which they are, how far they reach, and how many of them fit a job.

They are looked at in their columns, all of them at every plan: nothing is made for each row.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping
from typing import Final, TypeAlias

from rookery.cluster.state.partition import Kind, Partition
from rookery.formats.keys import is_stored
from rookery.formats.segment import FOOTER_BYTES, HEADER_BYTES, MAX_MESSAGES, MAX_SEGMENT_BYTES
from rookery.records.batch import HEADER_SIZE

RANGE_ROWS: Final = 1000
"""Rows of one range: it goes into one event, and its new rows are never more than the old ones."""

Damage: TypeAlias = Collection[tuple[int, int]]
"""Where rows lie that cannot be read: object ids and positions."""

_MOST_BYTES: Final = MAX_SEGMENT_BYTES - HEADER_BYTES - FOOTER_BYTES
_FINAL: Final = int(Kind.FINAL)
_IS_SEGMENT: Final = bytes(bool(kind & Kind.SEGMENT) for kind in range(256))


def loose_runs(partition: Partition, damage: Damage = ()) -> Iterator[range]:
    """Find the rows that lie one behind the other and in no segment."""
    taken = partition.kinds.tobytes().translate(_IS_SEGMENT)
    if damage:
        taken = _with_damage(partition, taken, damage)
    start = taken.find(0)
    while start >= 0:
        stop = taken.find(1, start)
        stop = len(taken) if stop < 0 else stop
        yield range(start, stop)
        start = taken.find(0, stop)


def may_grow(partition: Partition, index: int) -> bool:
    """Whether a row is a partition's last and lies in a journal, so that batches may join it."""
    object_id = partition.objects[index]
    return (
        index == len(partition.objects) - 1
        and object_id > 0
        and not is_stored(object_id)
        and not partition.kinds[index] & _FINAL
    )


def decided(partition: Partition) -> int:
    """Return the end of the rows whose transactions have all ended: segments tell which did not."""
    stable = partition.last_stable_offset
    if stable == partition.next_offset:
        return len(partition.base_offsets)
    return partition.row_of(stable)


def filled(partition: Partition, first: int, stop: int, limit: int) -> int:
    """Return the end of the rows from one on that fit a segment of the given bytes, or are one."""
    sizes, total = partition.sizes, partition.sizes[first]
    bases = partition.base_offsets
    most = bases[first] + MAX_MESSAGES
    if _end_of(partition, stop - 1) > most:
        stop = max(bisect_right(bases, most) - 1, first + 1)
    for index in range(first + 1, stop):
        total += sizes[index] or HEADER_SIZE  # an empty batch, where bytes are lost
        if total > limit:
            return index
    return stop


def fits_segment(partition: Partition, index: int) -> bool:
    """Whether a row alone is within the limits of a segment."""
    offsets = _end_of(partition, index) - partition.base_offsets[index]
    return partition.sizes[index] <= _MOST_BYTES and offsets <= MAX_MESSAGES


def below(partition: Partition, rows: range, limits: Mapping[int, int]) -> Iterator[range]:
    """Find the rows that lie before their object's limit, in ranges that an event can hold.

    Rows that lie in no object go with those before them.
    """
    at = slice(rows.start, rows.stop)
    get = limits.get
    start = -1
    index = rows.start
    for object_id, position in zip(partition.objects[at], partition.positions[at], strict=True):
        if object_id and position >= get(object_id, -1):
            if start >= 0:
                yield range(start, index)
            start = -1
        elif start < 0:
            start = index if object_id else -1
        elif index - start == RANGE_ROWS:
            yield range(start, index)
            start = index
        index += 1
    if start >= 0:
        yield range(start, index)


def fitting(partition: Partition, span: range, size: int, rows: int, *, is_first: bool) -> int:
    """Return the end of the rows of a span that fit; of the first span, one always does."""
    sizes = partition.sizes
    index = span.start
    if is_first:
        size -= sizes[index]
        index += 1
    stop = min(span.stop, span.start + rows)
    while index < stop and sizes[index] <= size:
        size -= sizes[index]
        index += 1
    return index


def _end_of(partition: Partition, index: int) -> int:
    after, bases = index + 1, partition.base_offsets
    return bases[after] if after < len(bases) else partition.next_offset


def _with_damage(partition: Partition, taken: bytes, damage: Damage) -> bytes:
    marked = bytearray(taken)
    objects = {object_id for object_id, _ in damage}
    for index, object_id in enumerate(partition.objects):
        if object_id in objects and (object_id, partition.positions[index]) in damage:
            marked[index] = 1
    return bytes(marked)
