"""What lives in each object, and since when: the rewriter's memory from one look to the next.

Times of records are whatever producers say, in the past or the future. How long something has
waited is therefore measured by when it was first seen here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rookery.cluster.state.partition import Kind, Partition

_FINAL = int(Kind.FINAL)


class Tally:
    """What one look at the rows has found in an object; segments and claimed rows left out."""

    __slots__ = ("busy", "bytes", "end", "is_final", "low", "rows", "top")

    def __init__(self, position: int, *, is_final: bool) -> None:
        self.bytes = 0
        self.rows = 0
        self.busy = 0
        """Bytes of partitions that will have a segment soon."""
        self.low = self.top = position
        """Where the first and the last row begin."""
        self.end = position
        self.is_final = is_final
        """Whether it is a merged object."""


class _Known:
    """What is remembered of an object."""

    __slots__ = ("data_ms", "end", "end_ms", "first_ms", "low", "low_ms", "peak")

    def __init__(self, now_ms: int) -> None:
        self.first_ms = self.data_ms = self.low_ms = self.end_ms = now_ms
        self.low = self.end = -1
        self.peak = 0


class Census:
    """Since when objects have been known, and how much has lived in them at most."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def observe(self, tallies: Mapping[int, Tally], now_ms: int) -> None:
        """Take note of a look at all rows; what it has not found is forgotten."""
        known = self._known
        self._known = {one: known.get(one) or _Known(now_ms) for one in tallies}
        for object_id, tally in tallies.items():
            found = self._known[object_id]
            found.peak = max(found.peak, tally.bytes)
            if tally.low != found.low:
                # What was first is gone: the rest came later.
                found.low, found.low_ms = tally.low, now_ms
            if tally.end > found.end:
                found.end, found.end_ms = tally.end, now_ms

    def adopt(self, object_id: int, inputs: Iterable[int], now_ms: int) -> None:
        """Let the data of a new object be as old as that of the objects it was made of."""
        ages = [self.waiting_ms(one, now_ms) for one in inputs]
        found = self._known.setdefault(object_id, _Known(now_ms))
        found.data_ms = now_ms - max(ages, default=0)

    def age_ms(self, object_id: int, now_ms: int) -> int:
        """Return how long an object has been known."""
        found = self._known.get(object_id)
        return now_ms - found.first_ms if found else 0

    def waiting_ms(self, object_id: int, now_ms: int) -> int:
        """Return how long the oldest data in an object have been known, here or before."""
        found = self._known.get(object_id)
        return now_ms - min(found.data_ms, found.low_ms) if found else 0

    def unmoved_ms(self, object_id: int, now_ms: int) -> int:
        """Return for how long the first row of an object has been the first."""
        found = self._known.get(object_id)
        return now_ms - found.low_ms if found else 0

    def quiet_ms(self, object_id: int, now_ms: int) -> int:
        """Return for how long nothing was added at an object's end."""
        found = self._known.get(object_id)
        return now_ms - found.end_ms if found else 0

    def peak(self, object_id: int) -> int:
        """Return how many bytes lived in an object at most."""
        found = self._known.get(object_id)
        return found.peak if found else 0


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
    # For every row that is in no segment, each time: kept plain, since calls would cost more.
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
