"""Stretches of logs in memory, bounded in bytes; the least recently used are evicted."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from rookery.proxy.virtual.slotindex import Stretch

_MAX_BYTES: Final = 64 << 20


class StretchCache:
    """The stretches of all logs of a virtual cluster."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._stretches: OrderedDict[tuple[Hashable, int], Stretch] = OrderedDict()

    def find(self, log: Hashable, number: int) -> Stretch | None:
        """Return a stretch by the log and its number; None if it is not in memory."""
        stretch = self._stretches.get((log, number))
        if stretch is not None:
            self._stretches.move_to_end((log, number))
        return stretch

    def add(self, log: Hashable, number: int, stretch: Stretch) -> None:
        """Keep a stretch; evict the least recently used ones."""
        self._remove((log, number))
        self._stretches[log, number] = stretch
        self._bytes += stretch.walked_bytes
        while self._bytes > self._max_bytes and len(self._stretches) > 1:
            self._remove(next(iter(self._stretches)))

    def drop(self, log: Hashable, first: int) -> None:
        """Drop the stretches of a log from a number on."""
        for key in [key for key in self._stretches if key[0] is log and key[1] >= first]:
            self._remove(key)

    def _remove(self, key: tuple[Hashable, int]) -> None:
        stretch = self._stretches.pop(key, None)
        if stretch is not None:
            self._bytes -= stretch.walked_bytes
