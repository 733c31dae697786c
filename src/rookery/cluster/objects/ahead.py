"""Caches entries that the search for the log's end has fetched, for the read that follows."""

from __future__ import annotations

from typing import Final

from rookery.cluster.port import LogEntry

_MAX_BYTES: Final = 1024 * 1024


class EntryBuffer:
    """A few entries by number; the lowest are evicted first when the size limit is exceeded."""

    def __init__(self, max_bytes: int = _MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._entries: dict[int, bytes] = {}
        self._bytes = 0

    def put(self, number: int, data: bytes) -> None:
        """Store an entry, evicting older ones if necessary."""
        if number in self._entries:
            return
        self._entries[number] = data
        self._bytes += len(data)
        while self._bytes > self._max_bytes and len(self._entries) > 1:
            self._pop(min(self._entries))

    def take(self, after: int, max_bytes: int) -> list[LogEntry]:
        """Remove and return the cached entries that follow number `after`."""
        taken: list[LogEntry] = []
        number = after + 1
        while (data := self._entries.get(number)) is not None:
            max_bytes -= len(data)
            if taken and max_bytes < 0:
                break
            taken.append(LogEntry(number, data))
            self._pop(number)
            number += 1
        return taken

    def drop(self, until: int) -> None:
        """Drop entries that will not be requested again."""
        for number in [number for number in self._entries if number <= until]:
            self._pop(number)

    def _pop(self, number: int) -> None:
        self._bytes -= len(self._entries.pop(number))
