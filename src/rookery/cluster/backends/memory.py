"""A cluster log in this process's memory, for tests and trials: `memory:name`.

Handles on the same name share one log, also across threads. The log exists as long as the process,
so that a "restarted" broker finds it again. `memory:` without a name is a new log each time.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Final

from rookery.cluster.port import (
    READ_BYTES,
    ClusterLog,
    ClusterLogTraits,
    Durability,
    EntriesTrimmed,
    LogEntry,
    check_beginning,
    check_empty,
    check_entry,
    check_trim,
)
from rookery.errors import Unavailable

_PREFIX: Final = "memory:"
_logs: Final[dict[str, _SharedLog]] = {}
_logs_lock: Final = threading.Lock()


def traits(_url: str) -> ClusterLogTraits:
    """Return the traits: the whole log is lost when the process ends."""
    return ClusterLogTraits(is_as_durable_as_store=True)


def open(url: str, durability: Durability) -> ClusterLog:  # noqa: A001, ARG001 (a backend's interface)
    """Open a handle on the log of that name."""
    name = url.removeprefix(_PREFIX)
    with _logs_lock:
        shared = _logs.setdefault(name, _SharedLog()) if name else _SharedLog()
    return MemoryLog(shared)


class _Waiter:
    """A pending wait, possibly on another thread's event loop."""

    def __init__(self, after: int) -> None:
        self.after = after
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[int] = self.loop.create_future()

    def wake(self, head: int) -> None:
        self.loop.call_soon_threadsafe(self._wake, head)

    def _wake(self, head: int) -> None:
        if not self.future.done():
            self.future.set_result(head)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class _SharedLog:
    """The log itself, shared by all handles on one name."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.floor = 0
        self.entries: list[LogEntry] = []
        self.waiters: set[_Waiter] = set()

    @property
    def head(self) -> int:
        """The last entry's number; call it with the lock held."""
        return self.floor + len(self.entries)


class MemoryLog:
    """One handle on a log in memory."""

    def __init__(self, shared: _SharedLog) -> None:
        self._shared = shared
        self._mine: set[_Waiter] = set()
        self._closed = False

    async def append(self, data: bytes) -> int:
        """Append one entry and wake the waiters for it."""
        self._check_open()
        check_entry(data)
        with self._shared.lock:
            number = self._shared.head + 1
            self._shared.entries.append(LogEntry(number, bytes(data)))
            woken = {waiter for waiter in self._shared.waiters if waiter.after < number}
            self._shared.waiters -= woken
        for waiter in woken:
            waiter.wake(number)
        return number

    async def read(self, after: int, max_bytes: int = READ_BYTES) -> list[LogEntry]:
        """Return the entries that follow number `after`."""
        self._check_open()
        taken: list[LogEntry] = []
        size = 0
        with self._shared.lock:
            if after < self._shared.floor:
                raise EntriesTrimmed(after, self._shared.floor)
            entries = self._shared.entries
            for index in range(after - self._shared.floor, len(entries)):
                size += len(entries[index].data)
                if taken and size > max_bytes:
                    break
                taken.append(entries[index])
        return taken

    async def head(self) -> int:
        """Return the last entry's number."""
        self._check_open()
        with self._shared.lock:
            return self._shared.head

    async def wait(self, after: int) -> int:
        """Return a head above `after`, as soon as there is one."""
        self._check_open()
        waiter = _Waiter(after)
        with self._shared.lock:
            if self._shared.head > after:
                return self._shared.head
            self._shared.waiters.add(waiter)
        self._mine.add(waiter)
        try:
            return await waiter.future
        finally:
            self._mine.discard(waiter)
            with self._shared.lock:
                self._shared.waiters.discard(waiter)

    async def trim(self, before: int) -> None:
        """Drop the entries below `before`."""
        self._check_open()
        with self._shared.lock:
            check_trim(before, self._shared.head)
            gone = before - 1 - self._shared.floor
            if gone > 0:
                del self._shared.entries[:gone]
                self._shared.floor = before - 1

    async def floor(self) -> int:
        """Return the highest number that was trimmed."""
        self._check_open()
        with self._shared.lock:
            return self._shared.floor

    async def begin_after(self, number: int) -> None:
        """Begin after a number, if there has never been an entry."""
        self._check_open()
        check_beginning(number)
        with self._shared.lock:
            check_empty(self._shared.head)
            self._shared.floor = number

    async def close(self) -> None:
        """Close the handle; the log itself stays."""
        self._closed = True
        for waiter in self._mine:
            waiter.fail(_closed())

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()


def _closed() -> Unavailable:
    return Unavailable("this handle on the cluster log was closed: open another")
