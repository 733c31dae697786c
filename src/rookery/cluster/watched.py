"""A cluster log whose calls are counted as pending until they are answered."""

from __future__ import annotations

from rookery.cluster.port import READ_BYTES, ClusterLog, Entry
from rookery.store.pending import PendingCalls


class WatchedLog:
    """Passes every call on. `wait` is not counted: it has no answer until there is an entry."""

    def __init__(self, cluster_log: ClusterLog, calls: PendingCalls) -> None:
        self._log = cluster_log
        self._calls = calls
        self.wait = cluster_log.wait
        self.close = cluster_log.close

    async def append(self, data: bytes) -> int:
        """Count and pass on."""
        with self._calls.call("an append"):
            return await self._log.append(data)

    async def read(self, after: int, max_bytes: int = READ_BYTES) -> list[Entry]:
        """Count and pass on."""
        with self._calls.call("a read"):
            return await self._log.read(after, max_bytes)

    async def head(self) -> int:
        """Count and pass on."""
        with self._calls.call("a look at its end"):
            return await self._log.head()

    async def trim(self, before: int) -> None:
        """Count and pass on."""
        with self._calls.call("a trim"):
            await self._log.trim(before)

    async def floor(self) -> int:
        """Count and pass on."""
        with self._calls.call("a look at its floor"):
            return await self._log.floor()

    async def begin_after(self, number: int) -> None:
        """Count and pass on."""
        with self._calls.call("a change of its beginning"):
            await self._log.begin_after(number)
