"""The newest batches of every partition, as readers get them, in memory.

What this broker has written it need not read again: the batches of a request stay in the memory
they were received into, with their offsets stamped, until newer ones push them out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Final, NamedTuple

from rookery.wire.buffer import Buffer

Key = tuple[bytes, int]
"""Topic id and partition."""

DEFAULT_BYTES: Final = 256 * 1024 * 1024


class Slice(NamedTuple):
    """Batches for a reader, and the offset behind them."""

    parts: list[Buffer]
    size: int
    next_offset: int


class _Line:
    """The batches of one partition, one behind the other without a gap."""

    __slots__ = ("bases", "ends", "first", "views")

    def __init__(self) -> None:
        self.bases: list[int] = []
        self.ends: list[int] = []
        self.views: list[memoryview] = []
        self.first = 0  # everything before it has been pushed out

    def drop_first(self) -> None:
        index = self.first
        self.views[index] = _GONE
        self.first = index + 1
        if self.first > 64 and self.first * 2 > len(self.views):
            for column in (self.bases, self.ends, self.views):
                del column[: self.first]
            self.first = 0


_GONE: Final = memoryview(b"")


class Tail:
    """A byte-bounded memory of the newest batches."""

    def __init__(self, limit: int = DEFAULT_BYTES) -> None:
        self.limit = limit
        self.used = 0
        self.hits = 0
        self.misses = 0
        self._lines: dict[Key, _Line] = {}
        self._order: deque[tuple[Key, _Line, int]] = deque()

    def add(self, key: Key, base: int, end: int, batch: memoryview) -> None:
        """Keep a batch with offsets from `base` to before `end`."""
        line = self._lines.get(key)
        if line is None or (line.ends and line.ends[-1] != base):
            # Another broker has written in between: what is here no longer joins up.
            line = self._lines[key] = _Line()
        line.bases.append(base)
        line.ends.append(end)
        line.views.append(batch)
        size = len(batch)
        self.used += size
        self._order.append((key, line, size))
        while self.used > self.limit:
            self._push_out()

    def read(self, key: Key, offset: int, max_bytes: int) -> Slice | None:
        """Return batches from the one that holds `offset` on; None if it is not here.

        The first batch comes whole whatever the limit (KIP-74); the others fit into it.
        """
        line = self._lines.get(key)
        if line is None or line.first >= len(line.views) or line.bases[line.first] > offset:
            self.misses += 1
            return None
        index = bisect_right(line.bases, offset, lo=line.first) - 1
        if line.ends[index] <= offset:
            self.misses += 1
            return None
        self.hits += 1
        return _cut(line, index, max_bytes)

    def forget(self, key: Key) -> None:
        """Give up a partition: its topic is gone."""
        self._lines.pop(key, None)

    def _push_out(self) -> None:
        key, line, size = self._order.popleft()
        self.used -= size
        line.drop_first()
        if line.first == len(line.views) and self._lines.get(key) is line:
            del self._lines[key]


def _cut(line: _Line, index: int, max_bytes: int) -> Slice:
    views = line.views
    first = views[index]
    parts: list[Buffer] = [first]
    size = len(first)
    index += 1
    while index < len(views) and size + len(views[index]) <= max_bytes:
        parts.append(views[index])
        size += len(views[index])
        index += 1
    return Slice(parts, size, line.ends[index - 1])
