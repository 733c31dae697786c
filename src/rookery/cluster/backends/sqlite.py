"""A cluster log in an SQLite file, shared by the processes of one host: `sqlite:///path`.

This is the embedded broker's default. Appends use one thread (`local/appender.py`), reads a second
and checkpoints a third, so that none of them blocks the others. The folder `<file>.peers` next to
the file holds the lock and a doorbell socket for each open handle.

With durability "disk" an append returns after its fdatasync. With "os" it returns once the
operating system has the bytes. They survive the death of any process, and a power cut loses at
most the end of the log, never its order.

Open a handle after forking, never before. Opening blocks for a few milliseconds, and for at most
ten seconds if a stopped process holds the lock.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from rookery.cluster.local.appender import LocalAppender
from rookery.cluster.local.database import LAID_OUT_BYTES, PAGE_BYTES, Database
from rookery.cluster.local.worker import Worker, settle
from rookery.cluster.port import (
    READ_BYTES,
    ClusterLog,
    ClusterLogTraits,
    Durability,
    LogEntry,
    check_beginning,
    check_entry,
)
from rookery.errors import ConfigError, Error, Unavailable

_PATIENCE_SECONDS: Final = 10.0
# The WAL is copied into the file whenever this much was appended here …
_CHECKPOINT_BYTES: Final[dict[Durability, int]] = {"disk": 2 << 20, "os": 8 << 20}
# … and beyond this, writers are blocked while the last pages are copied, so that the WAL can
# restart. This should happen before the WAL outgrows its preallocated space (see
# `Database.lay_out`).
_WAL_BYTES: Final[dict[Durability, int]] = {"disk": LAID_OUT_BYTES * 3 // 4, "os": 32 << 20}
_LAST_PAGES: Final = 256
_ROUNDS: Final = 3


def traits(url: str) -> ClusterLogTraits:
    """Return the traits: the file is on a disk of this host, like its journals and objects."""
    return ClusterLogTraits(is_as_durable_as_store=True, path=_path(url))


def open(url: str, durability: Durability) -> ClusterLog:  # noqa: A001 (a backend's interface)
    """Open a handle on the log in a file; the file is created if it is absent."""
    return SqliteLog(_path(url), durability)


def _path(url: str) -> Path:
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc or parts.query or parts.fragment or not path or "\0" in path:
        raise ConfigError(f"cluster log {url!r}: write sqlite:///absolute/path or sqlite:path")
    return Path(path)


class SqliteLog:
    """One handle on a log in a file."""

    def __init__(
        self, path: Path, durability: Durability = "disk", patience: float = _PATIENCE_SECONDS
    ) -> None:
        # One lock for each file, whichever links lead to it.
        path = path.resolve()
        self._loop = asyncio.get_running_loop()
        self._appender = LocalAppender(path, durability, patience, self._on_committed)
        self._bell = self._appender.open()
        self._reader = Worker("cluster-read", path, durability)
        self._copier = Worker("cluster-checkpoint", path, durability)
        self._closed = False
        self._head = 0
        self._waiters: dict[asyncio.Future[int], int] = {}
        self._look: asyncio.Task[None] | None = None
        # There were no rings for commits made before the bell was registered.
        self._unsure = True
        self._checkpoint_bytes = _CHECKPOINT_BYTES[durability]
        self._wal_pages = _WAL_BYTES[durability] // PAGE_BYTES
        self._uncopied = 0
        self._copying: asyncio.Task[None] | None = None
        self._loop.add_reader(self._bell.fileno(), self._answer)

    async def append(self, data: bytes) -> int:
        """Commit one entry, together with others that wait."""
        self._check_open()
        check_entry(data)
        number = await self._appender.append(bytes(data))
        self._uncopied += len(data) + PAGE_BYTES
        if self._uncopied > self._checkpoint_bytes and self._copying is None:
            self._uncopied = 0
            self._copying = self._loop.create_task(self._copy())
        return number

    async def read(self, after: int, max_bytes: int = READ_BYTES) -> list[LogEntry]:
        """Return the entries that follow number `after`."""
        self._check_open()
        entries = await self._reader.call(lambda database: database.read(after, max_bytes))
        if entries:
            self._on_committed(entries[-1].number)
        return entries

    async def head(self) -> int:
        """Return the last entry's number."""
        self._check_open()
        head = await self._reader.call(Database.head)
        self._on_committed(head)
        return head

    async def wait(self, after: int) -> int:
        """Return a head above `after`, as soon as there is one."""
        self._check_open()
        if self._head > after:
            return self._head
        waiter: asyncio.Future[int] = self._loop.create_future()
        self._waiters[waiter] = after
        if self._unsure and self._look is None:
            self._look = self._loop.create_task(self._find_head())
        try:
            return await waiter
        finally:
            self._waiters.pop(waiter, None)

    async def trim(self, before: int) -> None:
        """Raise the floor, then delete in small steps between which appends continue."""
        self._check_open()
        await self._appender.call(lambda database: database.raise_floor(before))
        while await self._appender.call(Database.delete_some):
            self._check_open()

    async def floor(self) -> int:
        """Return the highest number that was trimmed."""
        self._check_open()
        return await self._reader.call(Database.floor)

    async def begin_after(self, number: int) -> None:
        """Begin after a number, if there has never been an entry."""
        self._check_open()
        check_beginning(number)
        await self._appender.call(lambda database: database.begin_after(number))
        self._on_committed(number)

    async def close(self) -> None:
        """Close the handle."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._bell.fileno())
        self._bell.close()
        self._fail_waiters(_closed())
        for task in (self._look, self._copying):
            if task is not None:
                await asyncio.gather(task, return_exceptions=True)
        for part in (self._copier, self._reader, self._appender):
            await part.close()

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()

    def _on_committed(self, head: int) -> None:
        """Wake the waiters for an entry that is now known to exist."""
        if head <= self._head:
            return
        self._head = head
        for waiter, after in list(self._waiters.items()):
            if after < head:
                settle(waiter, head, None)

    def _fail_waiters(self, error: Exception) -> None:
        for waiter in self._waiters:
            settle(waiter, 0, error)

    def _answer(self) -> None:
        """Handle rings. If there are several, one may have been dropped, possibly the newest."""
        head, rings = self._bell.answer()
        self._on_committed(head)
        if rings > 1:
            self._unsure = True
            if self._waiters and self._look is None:
                self._look = self._loop.create_task(self._find_head())

    async def _find_head(self) -> None:
        """Find the head; if rings arrive during the request, look again."""
        try:
            while self._unsure and not self._closed:
                self._unsure = False
                await self.head()
        except Error as error:
            # A waiter must not keep waiting for an entry that may exist; the next waiter looks
            # again.
            self._unsure = True
            self._fail_waiters(error)
        finally:
            self._look = None

    async def _copy(self) -> None:
        """Keep the WAL short. A failure costs only disk space, and the next append retries."""
        try:
            if await self._outgrew():
                await self._appender.call(Database.checkpoint)
        except Error:
            self._uncopied = self._checkpoint_bytes
        finally:
            self._copying = None

    async def _outgrew(self) -> bool:
        """Copy while writers continue; return whether they must pause for the short remainder."""
        before = 0
        for _ in range(_ROUNDS):
            pages, copied = await self._copier.call(Database.checkpoint)
            if pages < self._wal_pages:
                return False
            if copied - before < _LAST_PAGES:
                break
            before = copied
        return True


def _closed() -> Unavailable:
    return Unavailable("this handle on the cluster log was closed: open another")
