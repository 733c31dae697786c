"""Entries as objects: one object each, created if absent, and found by number."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from rookery.cluster.objects.layout import (
    FLOOR_KEY,
    MAX_OBJECT_BYTES,
    PREFIX,
    Item,
    entry_key,
    read_item,
    write_item,
)
from rookery.cluster.port import LogEntry
from rookery.errors import Corrupt
from rookery.store.port import NotFound, Store

IN_FLIGHT: Final = 16
"""The maximum number of concurrent requests of one call."""

_TYPICAL_BYTES: Final = 4096


class EntryObjects:
    """The objects of the entries in one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._typical_bytes = _TYPICAL_BYTES

    async def create(self, number: int, item: Item) -> None:
        """Create an entry's object; raises as the store's `create` does."""
        await self._store.create(entry_key(number), write_item(number, item))

    async def get(self, number: int) -> Item | None:
        """Return the contents of an entry's object, None if there is none."""
        try:
            # One byte more than the maximum, so that a foreign object cannot exhaust memory.
            data = await self._store.read(entry_key(number), 0, MAX_OBJECT_BYTES + 1)
        except NotFound:
            return None
        return read_item(number, data)

    async def exists(self, number: int) -> bool:
        """Return whether an entry's object exists, without fetching it."""
        return await self._store.size(entry_key(number)) is not None

    async def delete(self, first: int, last: int) -> None:
        """Delete the objects of a range of entries, if they exist."""
        for start in range(first, last + 1, IN_FLIGHT):
            numbers = range(start, min(start + IN_FLIGHT, last + 1))
            await asyncio.gather(*(self._store.delete(entry_key(n)) for n in numbers))

    async def read(self, after: int, known: int, max_bytes: int) -> list[LogEntry]:
        """Return the entries that follow, up to the first that does not exist.

        Several are fetched concurrently: those up to `known`, which exist, and beyond them a
        growing number, as long as all were found.
        """
        entries: list[LogEntry] = []
        left, ahead = max(1, max_bytes), 1
        while left > 0:
            fitting = max(1, left // self._typical_bytes)
            ahead = min(max(known - after, ahead), fitting, IN_FLIGHT)
            numbers = range(after + 1, after + ahead + 1)
            for number, item in zip(
                numbers, await asyncio.gather(*map(self.get, numbers)), strict=True
            ):
                if item is None or (entries and len(item.data) > left):
                    return entries
                entries.append(LogEntry(number, item.data))
                left -= len(item.data)
            self._learn(entries[-ahead:])
            after, ahead = after + ahead, ahead * 2
        return entries

    async def check_empty(self) -> None:
        """Reject a log whose beginning is missing: without its floor, it would look new."""
        keys = [stored.key for stored in await self._store.list(PREFIX)]
        if keys and FLOOR_KEY not in keys and keys[0] != entry_key(1):
            raise Corrupt(
                f"the store holds {keys[0]!r}, but neither what came before it nor "
                f"{FLOOR_KEY!r}: someone else removed them; restore them, or run `rookery recover`"
            )

    def _learn(self, entries: list[LogEntry]) -> None:
        """Track the recent size of entries, so that reads fetch only what they can return."""
        mean = sum(len(entry.data) for entry in entries) // len(entries)
        self._typical_bytes = max(1, (self._typical_bytes + mean) // 2)


async def last_present(exists: Callable[[int], Awaitable[bool]], start: int) -> int:
    """Return the last existing number, given that `start` exists and there are no gaps.

    It takes two requests for each doubling of the distance.
    """
    step = 1
    while await exists(start + step):
        start, step = start + step, step * 2
    below, absent = start, start + step
    while absent - below > 1:
        middle = (below + absent) // 2
        if await exists(middle):
            below = middle
        else:
            absent = middle
    return below
