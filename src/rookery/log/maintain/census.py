"""The input of a plan: rows outside segments, and the contents and age of each object.

Every plan scans all rows by column. No object is created for each row.

Timestamps of records are set by producers and may be in the past or in the future. The waiting time
is therefore measured from when data was first seen here. A `Census` keeps these times between
plans.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from rookery.cluster.state.partition import Partition, RowKind
from rookery.formats.keys import is_stored
from rookery.formats.segment import FOOTER_BYTES, HEADER_BYTES, MAX_MESSAGES, MAX_SEGMENT_BYTES
from rookery.records.batches import HEADER_SIZE

RANGE_ROWS: Final = 1000
"""Rows of one range: it fits into one event and never produces more rows than it replaces."""

Damage: TypeAlias = Collection[tuple[int, int]]
"""Rows that cannot be read: object ids and positions."""

_MOST_BYTES: Final = MAX_SEGMENT_BYTES - HEADER_BYTES - FOOTER_BYTES
_FINAL: Final = int(RowKind.FINAL)
_IS_SEGMENT: Final = bytes(bool(kind & RowKind.SEGMENT) for kind in range(256))


class Tally:
    """The contents of an object in one scan of the rows, without segments and claimed rows."""

    __slots__ = ("busy", "bytes", "end", "is_final", "low", "rows", "top")

    def __init__(self, position: int, *, is_final: bool) -> None:
        self.bytes = 0
        self.rows = 0
        self.busy = 0
        """Bytes of partitions that will have a segment soon."""
        self.low = self.top = position
        """The positions of the first and the last row."""
        self.end = position
        self.is_final = is_final
        """Whether it is a merged object."""


class _ObjectHistory:
    """The history of an object."""

    __slots__ = ("data_ms", "end", "end_ms", "first_ms", "low", "low_ms", "peak")

    def __init__(self, now_ms: int) -> None:
        self.first_ms = self.data_ms = self.low_ms = self.end_ms = now_ms
        self.low = self.end = -1
        self.peak = 0


class Census:
    """When objects were first seen, and the most bytes that were live in them."""

    def __init__(self) -> None:
        self._known: dict[int, _ObjectHistory] = {}

    def observe(self, tallies: Mapping[int, Tally], now_ms: int) -> None:
        """Record a scan of all rows; objects that it did not find are dropped."""
        known = self._known
        self._known = {
            object_id: known.get(object_id) or _ObjectHistory(now_ms) for object_id in tallies
        }
        for object_id, tally in tallies.items():
            history = self._known[object_id]
            history.peak = max(history.peak, tally.bytes)
            if tally.low != history.low:
                # The first row was removed: the remaining rows are younger.
                history.low, history.low_ms = tally.low, now_ms
            if tally.end > history.end:
                history.end, history.end_ms = tally.end, now_ms

    def adopt(self, object_id: int, inputs: Iterable[int], now_ms: int) -> None:
        """Set the age of a new object's data to that of the objects it was made of."""
        ages = [self.waiting_ms(source, now_ms) for source in inputs]
        history = self._known.setdefault(object_id, _ObjectHistory(now_ms))
        history.data_ms = now_ms - max(ages, default=0)

    def age_ms(self, object_id: int, now_ms: int) -> int:
        """Return how long ago an object was first seen."""
        history = self._known.get(object_id)
        return now_ms - history.first_ms if history else 0

    def waiting_ms(self, object_id: int, now_ms: int) -> int:
        """Return how long the oldest data in an object has been known, here or in earlier ones."""
        history = self._known.get(object_id)
        return now_ms - min(history.data_ms, history.low_ms) if history else 0

    def unmoved_ms(self, object_id: int, now_ms: int) -> int:
        """Return how long the first row of an object has been the first."""
        history = self._known.get(object_id)
        return now_ms - history.low_ms if history else 0

    def quiet_ms(self, object_id: int, now_ms: int) -> int:
        """Return how long nothing has been appended to an object."""
        history = self._known.get(object_id)
        return now_ms - history.end_ms if history else 0

    def peak(self, object_id: int) -> int:
        """Return the most bytes that were live in an object."""
        history = self._known.get(object_id)
        return history.peak if history else 0


def count_rows(
    tallies: dict[int, Tally], partition: Partition, rows: range, *, is_busy: bool
) -> None:
    """Add some rows of a partition to the tallies of their objects."""
    at = slice(rows.start, rows.stop)
    columns = zip(
        partition.objects[at],
        partition.positions[at],
        partition.sizes[at],
        partition.kinds[at],
        strict=True,
    )
    # This loop runs for every row outside segments in each plan. It avoids calls, which cost more.
    for object_id, position, size, kind in columns:
        if not object_id:
            continue  # its bytes are lost
        tally = tallies.get(object_id)
        if tally is None:
            tallies[object_id] = tally = Tally(position, is_final=bool(kind & _FINAL))
        tally.bytes += size
        tally.rows += 1
        if is_busy:
            tally.busy += size
        if position < tally.low:  # noqa: PLR1730 (a call costs more)
            tally.low = position
        if position >= tally.top:
            tally.top = position
            tally.end = position + size


def loose_runs(partition: Partition, damage: Damage = ()) -> Iterator[range]:
    """Find runs of consecutive rows that are in no segment."""
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
    """Whether a row is the partition's last and in a journal, so that batches may join it."""
    object_id = partition.objects[index]
    return (
        index == len(partition.objects) - 1
        and object_id > 0
        and not is_stored(object_id)
        and not partition.kinds[index] & _FINAL
    )


def find_decided_end(partition: Partition) -> int:
    """Return the end of the rows whose transactions have all ended; segments list aborted ones."""
    stable = partition.last_stable_offset
    if stable == partition.next_offset:
        return len(partition.base_offsets)
    return partition.row_of(stable)


def find_segment_end(partition: Partition, first: int, stop: int, limit: int) -> int:
    """Return the end of the rows that fit into a segment of `limit` bytes; at least one row."""
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
    """Find the rows before the limit of their object, in ranges that fit into an event.

    Rows without an object belong to the range of the rows before them.
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


def find_fitting_end(
    partition: Partition, span: range, size: int, rows: int, *, is_first: bool
) -> int:
    """Return the end of the rows of a span that fit; one row of the first span always fits."""
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
