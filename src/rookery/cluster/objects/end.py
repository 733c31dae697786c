"""The end of the log: the last known entry, and the search for the actual end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rookery.cluster.objects.ahead import EntryBuffer
from rookery.cluster.objects.entries import EntryObjects, last_present
from rookery.cluster.objects.floor import Floor
from rookery.cluster.port import LogEntry

# This many entries are fetched one after the other before the search only checks for existence.
_NEAR: Final = 4


class End:
    """The last entry that a handle knows of; it exists, or it is the floor."""

    def __init__(
        self,
        entries: EntryObjects,
        floor: Floor,
        ahead: EntryBuffer,
        when_grown: Callable[[int], None],
    ) -> None:
        self.known = 0
        self._entries = entries
        self._floor = floor
        self._ahead = ahead
        self._when_grown = when_grown
        self._is_new = False

    def see(self, number: int) -> None:
        """Record that an entry exists, from a confirmed response (see `floor.py`)."""
        if number > self.known:
            self.known = number
            self._when_grown(number)

    async def find(self) -> int:
        """Return the number of the last entry, as of some moment during this call."""
        while True:
            start = max(self.known, await self._floor.confirm())
            met, number = await self._search(start)
            if await self._floor.confirm() > number:
                continue  # The absent entry had been deleted: look again from the floor on.
            if number == 0 and not self._is_new:
                await self._entries.check_empty()
                self._is_new = True
            for entry in met:
                self._ahead.put(*entry)
            self.see(number)
            return number

    async def _search(self, start: int) -> tuple[list[LogEntry], int]:
        """Return the entries fetched after `start`, and the number of the last existing entry."""
        met: list[LogEntry] = []
        for number in range(start + 1, start + 1 + _NEAR):
            item = await self._entries.get(number)
            if item is None:
                return met, number - 1
            met.append(LogEntry(number, item.data))
        return met, await last_present(self._entries.exists, start + _NEAR)
