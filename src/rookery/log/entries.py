"""Batches that ride in entries of the cluster log, as readers get at them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from rookery.cluster.entry import read_entry
from rookery.cluster.port import ClusterLog, Trimmed
from rookery.errors import Conflict, Corrupt
from rookery.log.files import Missing

_READ_BYTES: Final = 512 * 1024
_CACHE_BYTES: Final = 16 * 1024 * 1024


class TrimmedEntry(Missing):
    """An entry was trimmed, so its batches are elsewhere: read the state again, then plan anew."""

    def __init__(self, number: int) -> None:
        Conflict.__init__(
            self,
            f"entry {number} was trimmed from the cluster log; if the cluster log still names "
            "batches in it, run rookery fsck",
        )
        self.object_id = -number


class Entries:
    """The payloads of entries, read a few at a time, since readers go forward."""

    def __init__(self, cluster_log: ClusterLog) -> None:
        self._log = cluster_log
        self._kept: OrderedDict[int, memoryview] = OrderedDict()
        self._kept_bytes = 0
        self._reading = asyncio.Lock()

    async def payload(self, number: int) -> memoryview:
        """Return the payload of an entry.

        Raises:
            TrimmedEntry: the entry was trimmed.
            Corrupt: the log has no such entry.
            Unavailable: the cluster log cannot be read.
        """
        if number not in self._kept:
            async with self._reading:  # others may want the same
                if number not in self._kept:
                    return await self._load(number)
        self._kept.move_to_end(number)
        return self._kept[number]

    async def _load(self, number: int) -> memoryview:
        wanted: memoryview | None = None
        try:
            entries = await self._log.read(number - 1, _READ_BYTES)
        except Trimmed as error:
            raise TrimmedEntry(number) from error
        for found, data in entries:
            payload = memoryview(read_entry(found, data).payload)  # type: ignore[arg-type] # read as a view
            if found == number:
                wanted = payload
            self._keep(found, payload)
        if wanted is None:
            raise Corrupt(f"entry {number} of the cluster log is gone, and batches in it with it")
        return wanted

    def _keep(self, number: int, payload: memoryview) -> None:
        if number in self._kept or not payload:
            return
        self._kept[number] = payload
        self._kept_bytes += len(payload)
        while self._kept_bytes > _CACHE_BYTES:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1])
