"""A cluster log that fails on request, over any real one."""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum, auto

from rookery.cluster.port import READ_BYTES, ClusterLog, LogEntry
from rookery.errors import Unavailable


class AppendFault(Enum):
    """The fault of an append."""

    NONE = auto()
    NOT_SENT = auto()
    """It fails before it reaches the log: the entry is not stored."""
    LOST_ANSWER = auto()
    """The entry is appended, but the caller gets an error."""


class FaultyLog:
    """Passes calls on to a log, except for the faults that a test sets."""

    def __init__(self, log: ClusterLog) -> None:
        self._log = log
        self._faults: deque[AppendFault] = deque()
        self._passable = asyncio.Event()
        self._passable.set()
        self._reachable = True
        self.failing_reads = 0
        """The number of next reads that fail."""
        self.arrived = 0
        """The number of appends that have arrived, held back or not."""

    def order(self, *faults: AppendFault) -> None:
        """Set the outcomes of the next appends, in order; later ones succeed."""
        self._faults.extend(faults)

    def hold(self) -> None:
        """Hold back appends, before they reach the log, until they are let through."""
        self._passable.clear()

    def let_through(self) -> None:
        """End `hold`."""
        self._passable.set()

    def cut(self) -> None:
        """Make the log unreachable: all calls except `close` fail, also those that wait."""
        self._reachable = False

    def mend(self) -> None:
        """End `cut`."""
        self._reachable = True

    async def append(self, data: bytes) -> int:
        """Append, with the fault that is next in order."""
        self.arrived += 1
        fault = self._faults.popleft() if self._faults else AppendFault.NONE
        await self._passable.wait()
        self._check()
        if fault is AppendFault.NOT_SENT:
            raise Unavailable("ordered by the test: not sent")
        number = await self._log.append(data)
        if fault is AppendFault.LOST_ANSWER:
            raise Unavailable("ordered by the test: the answer is lost")
        self._check()
        return number

    async def read(self, after: int, max_bytes: int = READ_BYTES) -> list[LogEntry]:
        """Read, if the log is in reach."""
        self._check()
        if self.failing_reads:
            self.failing_reads -= 1
            raise Unavailable("ordered by the test: the read fails")
        return await self._log.read(after, max_bytes)

    async def head(self) -> int:
        """Return the head, if the log is in reach."""
        self._check()
        return await self._log.head()

    async def wait(self, after: int) -> int:
        """Wait, if the log is in reach."""
        self._check()
        head = await self._log.wait(after)
        self._check()
        return head

    async def trim(self, before: int) -> None:
        """Trim, if the log is in reach."""
        self._check()
        await self._log.trim(before)

    async def floor(self) -> int:
        """Return the floor, if the log is in reach."""
        self._check()
        return await self._log.floor()

    async def begin_after(self, number: int) -> None:
        """Begin elsewhere, if the log is in reach."""
        self._check()
        await self._log.begin_after(number)

    async def close(self) -> None:
        """Close the log underneath."""
        await self._log.close()

    def _check(self) -> None:
        if not self._reachable:
            raise Unavailable("ordered by the test: cannot be reached")
