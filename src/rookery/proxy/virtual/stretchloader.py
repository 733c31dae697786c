"""Finds the stretches of one log in memory, or reads them again."""

from __future__ import annotations

import asyncio
from functools import partial

from rookery.errors import Corrupt, Unavailable
from rookery.proxy.virtual.slotindex import SlotIndex, Stretch
from rookery.proxy.virtual.stretchcache import StretchCache
from rookery.proxy.virtual.upstreamcalls import LeaderReader


class StretchLoader:
    """The stretches of one log; each is read again once for all clients that need it."""

    def __init__(self, index: SlotIndex, reader: LeaderReader, cache: StretchCache) -> None:
        self._index = index
        self._reader = reader
        self._cache = cache
        self._loads: dict[int, asyncio.Task[Stretch]] = {}

    def close(self) -> None:
        """Stop reading, and drop everything."""
        self.drop(0)

    def add(self, number: int, stretch: Stretch) -> None:
        """Keep a stretch."""
        self._cache.add(self, number, stretch)

    def drop(self, first: int) -> None:
        """Drop the stretches from a number on; requests that wait for any fail."""
        self._cache.drop(self, first)
        for load in self._loads.values():
            load.cancel()
        self._loads.clear()

    async def find(self, number: int) -> Stretch:
        """Return a stretch, read again if it is not in memory.

        Raises:
            Corrupt: the log has other batches than when it was read first.
            Unavailable: the leader does not answer.
        """
        if number == len(self._index.starts) - 1:
            return self._index.open
        stretch = self._cache.find(self, number)
        if stretch is not None:
            return stretch
        load = self._loads.get(number)
        if load is None:
            load = self._loads[number] = asyncio.create_task(self._load(number))
            load.add_done_callback(partial(_forget, self._loads, number))
        await asyncio.wait([load])
        if load.cancelled():
            raise Unavailable("the log was cut while it was read; try again")
        return load.result()

    async def _load(self, number: int) -> Stretch:
        start, end = self._index.starts[number], self._index.starts[number + 1]
        stretch = Stretch(start)
        while stretch.offset < end.offset:
            data = await self._reader.fetch(stretch.offset, stretch.epoch, 0)
            if data.error_code:
                raise Unavailable(f"reading again: {data.error_code.name}")
            before = stretch.offset
            stretch.take(data.records or b"", self._index.untagged, end.offset)  # type: ignore[arg-type] # fetched records are one view
            if stretch.offset == before:
                raise Unavailable(f"offset {before} cannot be read again at the moment")
        if stretch.end() != end:
            raise Corrupt(
                f"the log has other batches from offset {start.offset} than when they were read "
                "first"
            )
        self._cache.add(self, number, stretch)
        return stretch


def _forget(
    loads: dict[int, asyncio.Task[Stretch]], number: int, load: asyncio.Task[Stretch]
) -> None:
    if loads.get(number) is load:
        del loads[number]
    if not load.cancelled():
        # Every client that waits for it may be gone.
        load.exception()
