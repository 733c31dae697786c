"""The newest batches of every partition in memory, as readers get them.

A broker need not read back batches that it has written. The batches of a request stay in the memory
into which they were received, with their offsets stamped, until newer batches evict them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from typing import Final, NamedTuple

from rookery.wire.buffer import Buffer

Key = tuple[bytes, int]
"""Topic id and partition."""

DEFAULT_BYTES: Final = 256 * 1024 * 1024
# The overhead of a batch in addition to its bytes: views, numbers and list entries.
_COST_BYTES: Final = 512
_FAR: Final = (1 << 63) - 1


class TailSlice(NamedTuple):
    """Batches for a reader, and the offset after them."""

    parts: list[Buffer]
    size: int
    next_offset: int


class _Line:
    """Consecutive batches of one partition without a gap."""

    __slots__ = ("bases", "end", "first", "totals", "views")

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.views: list[memoryview] = []
        self.totals: list[int] = []  # bytes of all batches up to and including each
        self.end = -1
        self.first = 0  # all batches before it were evicted

    def add(self, base: int, end: int, batch: memoryview) -> None:
        self.bases.append(base)
        self.views.append(batch)
        self.totals.append((self.totals[-1] if self.totals else 0) + len(batch))
        self.end = end

    def drop_first(self) -> None:
        index = self.first
        self.views[index] = _GONE
        self.first = index + 1
        if self.first > 8 and self.first * 2 > len(self.views):
            # The last total remains the base for the totals that follow.
            del self.bases[: self.first], self.views[: self.first], self.totals[: self.first]
            self.first = 0

    def cut(
        self, offset: int, max_bytes: int, *, whole_first: bool, until: int
    ) -> TailSlice | None:
        if offset >= self.end:
            return None
        index = bisect_right(self.bases, offset, lo=self.first) - 1
        if index < self.first:
            return None
        views, totals = self.views, self.totals
        before = totals[index] - len(views[index])
        stop = bisect_right(totals, before + max_bytes, lo=index)
        if stop == index:
            if not whole_first:
                return TailSlice([], 0, offset)
            stop = index + 1
        end = self.bases[stop] if stop < len(views) else self.end
        if end > until:
            stop = bisect_left(self.bases, until, lo=index, hi=stop)
            if stop == index:
                return TailSlice([], 0, offset)
            end = self.bases[stop]
        parts: list[Buffer] = list(views[index:stop])
        return TailSlice(parts, totals[stop - 1] - before, end)


_GONE: Final = memoryview(b"")


class Tail:
    """A cache of the newest batches, bounded in bytes."""

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        self.limit = limit
        self.used = 0
        self.hits = 0
        self.misses = 0
        self._lines: dict[Key, _Line] = {}
        self._order: deque[tuple[Key, _Line, int]] = deque()

    def add(self, key: Key, base: int, end: int, batch: memoryview) -> None:
        """Add a batch with offsets from `base` to before `end`."""
        line = self._lines.get(key)
        if line is None or line.end != base:
            # Another broker has written in between: the batches here are no longer contiguous.
            line = self._lines[key] = _Line()
        line.add(base, end, batch)
        cost = len(batch) + _COST_BYTES
        self.used += cost
        self._order.append((key, line, cost))
        while self.used > self.limit:
            self._push_out()

    def read(
        self,
        key: Key,
        offset: int,
        max_bytes: int,
        *,
        whole_first: bool = True,
        until: int = _FAR,
    ) -> TailSlice | None:
        """Return batches, starting with the one that holds `offset`; None if it is not here.

        With `whole_first` the first batch is returned even if it exceeds the limit (KIP-74).
        Otherwise only batches within the limit are returned. No batch begins at `until` or after
        it.
        """
        line = self._lines.get(key)
        piece = (
            line.cut(offset, max_bytes, whole_first=whole_first, until=until)
            if line is not None
            else None
        )
        if piece is None:
            self.misses += 1
        else:
            self.hits += 1
        return piece

    def end(self, key: Key) -> int | None:
        """Return the offset after the newest batch of a partition; None if there is no batch."""
        line = self._lines.get(key)
        return line.end if line is not None else None

    def forget(self, key: Key) -> None:
        """Drop a partition whose topic was deleted."""
        self._lines.pop(key, None)

    def _push_out(self) -> None:
        key, line, cost = self._order.popleft()
        self.used -= cost
        line.drop_first()
        if line.first == len(line.views) and self._lines.get(key) is line:
            del self._lines[key]
