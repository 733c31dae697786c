"""Appending: the process that creates object n, if absent, writes entry n.

    known n-1 ──► create n ──► done: ours
                     │ exists, or the answer is lost
                     ▼
                  read n ──► ours ──► done
                     │  └──► another's: n is known, continue with n+1
                     └─ absent ──► create n again: the same bytes under the same key

A create whose response was lost may still arrive. It is harmless: either n is already taken, or
the create writes the same bytes that the retry writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Final, TypeVar

from rookery.clock import Random
from rookery.cluster.objects.ahead import EntryBuffer
from rookery.cluster.objects.end import End
from rookery.cluster.objects.entries import EntryObjects
from rookery.cluster.objects.floor import Floor
from rookery.cluster.objects.layout import ID_BYTES, Item
from rookery.cluster.objects.turns import Turns
from rookery.errors import Conflict, Unavailable

T = TypeVar("T")

_RETRY_SECONDS: Final = (0.02, 0.1, 0.3, 1.0)
# A writer that lost this many numbers in a row may lag far behind the end of the log.
_LOSSES: Final = 4


class ObjectAppender:
    """Creates entries, one at a time."""

    def __init__(
        self, entries: EntryObjects, floor: Floor, end: End, ahead: EntryBuffer, random: Random
    ) -> None:
        self._entries = entries
        self._floor = floor
        self._end = end
        self._ahead = ahead
        self._random = random
        self._turns = Turns(random)
        self._is_near = False

    async def append(self, data: bytes) -> int:
        """Append an entry and return its number; it retries without limit."""
        await self._turns.wait()
        item = Item(self._random.token(ID_BYTES), data)
        while True:
            await self._catch_up(item)
            number = self._end.known + 1
            stored = await self._claim(number, item)
            await self._check_floor(number)
            self._ahead.put(number, stored.data)
            self._end.see(number)
            if stored.id == item.id:
                self._turns.note_win(number)
                return number
            self._turns.note_loss(number, stored.losses)
            item = item._replace(losses=item.losses + 1)

    async def _catch_up(self, item: Item) -> None:
        """Search for the log's end, if this handle may lag far behind it."""
        floor = await self._patiently(self._floor.confirm)
        if floor > self._end.known or not self._is_near or item.losses % _LOSSES == _LOSSES - 1:
            await self._patiently(self._end.find)
            self._is_near = True

    async def _claim(self, number: int, item: Item) -> Item:
        """Create an entry, unless another one exists; return the one that exists in the end."""
        for tries in count():
            # A conflict is most likely with another writer's entry. But clients of stores retry,
            # and then the existing entry may be ours.
            with suppress(Conflict, Unavailable):
                with self._turns.measure():
                    await self._entries.create(number, item)
                return item
            stored = await self._patiently(lambda: self._entries.get(number))
            if stored is not None:
                return stored
            await self._check_floor(number)
            await self._pause(tries)
        raise AssertionError  # for type checkers: the loop has no end

    async def _check_floor(self, number: int) -> None:
        """Raise if the number was trimmed in the meantime.

        Either the entry was created after its number had been used and deleted, or it was valid
        and has been trimmed since. The two cases cannot be distinguished.
        """
        floor = await self._patiently(self._floor.confirm)
        if floor < number:
            return
        await self._floor.bury(number)
        raise Unavailable(
            f"the log was trimmed up to {floor} while entry {number} was being written: it is not "
            "known whether it was ever part of the log"
        )

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Retry until there is a response; the caller has a deadline."""
        for tries in count():
            with suppress(Unavailable):
                return await ask()
            await self._pause(tries)
        raise AssertionError

    async def _pause(self, tries: int) -> None:
        seconds = _RETRY_SECONDS[min(tries, len(_RETRY_SECONDS) - 1)]
        await asyncio.sleep(self._random.jitter(seconds))
