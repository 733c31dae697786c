"""The writing thread of a handle: it takes the lock, commits the queue, responds, then rings.

    append ──► queue ──► turnstile ──► everything queued, in one transaction ──► answers
                                                                          └──► the others' bells

It takes from the queue after it has acquired the lock, so that a thread that had to wait for other
processes commits everything that was queued in the meantime.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, TypeVar, cast

from rookery.cluster.local.database import Database, translate
from rookery.cluster.local.peers import Bell, Ringer, Turnstile, describe_holder
from rookery.cluster.local.worker import settle
from rookery.cluster.port import Durability
from rookery.errors import Error, Unavailable
from rookery.store.syncfolder import sync_folder

T = TypeVar("T")

_GROUP_ENTRIES: Final = 32
_GROUP_BYTES: Final = 1024 * 1024
_TICKS: Final = 2


class _Job:
    """An entry to append, or a function to call, and the future for its result."""

    __slots__ = ("future", "taken", "tick", "work")

    def __init__(
        self, work: bytes | Callable[[Database], object], future: asyncio.Future[object], tick: int
    ) -> None:
        self.work = work
        self.future = future
        self.tick = tick
        self.taken = False


_Answer = tuple[_Job, object, Exception | None]


class LocalAppender:
    """The writing side of a handle."""

    def __init__(
        self, path: Path, durability: Durability, patience: float, when_done: Callable[[int], None]
    ) -> None:
        self._path = path
        self._folder = path.with_name(path.name + ".peers")
        self._durability = durability
        self._patience = patience
        self._when_done = when_done
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._mutex = threading.Lock()
        self._opened = threading.Event()
        self._failure: Exception | None = None
        self._given_up = False
        self._waiting: dict[_Job, None] = {}
        self._tick = 0
        self._timer: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._work, name="cluster-append", daemon=True)

    def open(self) -> Bell:
        """Create or open the log, and register this handle's bell."""
        self._thread.start()
        if not self._opened.wait(self._patience):
            self._given_up = True
            self._jobs.put(None)
            raise self._lock_error()
        if self._failure is not None:
            raise self._failure
        return self._bell

    async def append(self, data: bytes) -> int:
        """Commit an entry together with other queued entries; return its number."""
        return cast("int", await self._ask(data))

    async def call(self, function: Callable[[Database], T]) -> T:
        """Call a function in the thread while it holds the lock."""
        return cast("T", await self._ask(function))

    async def close(self) -> None:
        """Complete the queued jobs, then stop the thread."""
        self._jobs.put(None)
        await self._loop.run_in_executor(None, self._thread.join, 2 * self._patience)
        if self._timer is not None:
            self._timer.cancel()

    # On the event loop.

    async def _ask(self, work: bytes | Callable[[Database], object]) -> object:
        job = _Job(work, self._loop.create_future(), self._tick)
        self._waiting[job] = None
        if self._timer is None:
            self._arm()
        self._jobs.put(job)
        try:
            return await job.future
        finally:
            del self._waiting[job]

    def _arm(self) -> None:
        self._timer = self._loop.call_later(self._patience / _TICKS, self._lose_patience)

    def _lose_patience(self) -> None:
        """Fail jobs that still wait for the lock: a stopped process may hold it indefinitely."""
        self._timer = None
        self._tick += 1
        for job in self._waiting:
            if self._tick - job.tick > _TICKS and self._take(job):
                settle(job.future, None, self._lock_error())
        if self._waiting:
            self._arm()

    def _settle(self, answers: list[_Answer], head: int) -> None:
        for job, result, error in answers:
            settle(job.future, result, error)
        # After the results, so that an appender wakes before the waiters.
        self._when_done(head)

    def _take(self, job: _Job) -> bool:
        """Claim a job atomically for one of the two threads: it is executed or abandoned."""
        with self._mutex:
            if job.taken:
                return False
            job.taken = True
            return not job.future.cancelled()

    def _lock_error(self) -> Unavailable:
        unknown = f"look for a stopped process that has {self._folder / 'lock'} open"
        return Unavailable(
            f"{self._path}: another process has held the log for {self._patience:g} s, or the "
            f"disk hangs; nothing was done: {describe_holder(self._folder) or unknown}"
        )

    # In the thread.

    def _work(self) -> None:
        try:
            self._start()
        except Exception as error:  # noqa: BLE001 (a thread's root: the opener receives it)
            self._failure = self._translate(error)
        self._opened.set()
        if self._failure is None:
            self._lay_out()
            while self._turn(self._jobs.get()):
                pass
            self._stop()

    def _start(self) -> None:
        _make_folders(self._folder)
        with ExitStack() as undo:
            self._turnstile = Turnstile(self._folder)
            undo.callback(self._turnstile.close)
            with self._turnstile:
                self._connect(undo)
            undo.pop_all()

    def _connect(self, undo: ExitStack) -> None:
        # The file holds secrets; SQLite gives its side files the same permissions.
        if not self._path.exists():
            self._path.touch(mode=0o600)
        self._database = Database(self._path, self._durability)
        undo.callback(self._database.close)
        self._database.create()
        self._bell = Bell(self._folder)
        undo.callback(self._bell.close)
        self._ringer = Ringer(self._folder, self._bell.name)
        undo.callback(self._ringer.close)
        self._ringer.sweep()
        self._ringer.look_around()
        # Last: a process that sees the new arrival count must find the bell.
        self._turnstile.count_arrival()
        self._arrivals = self._turnstile.arrivals()

    def _lay_out(self) -> None:
        # This only makes syncs faster: if it fails, the log works without it.
        if self._durability == "disk":
            with self._turnstile, suppress(OSError):
                self._database.lay_out()

    def _stop(self) -> None:
        # The last handle to close copies the WAL into the file, which must not be disturbed.
        with self._turnstile:
            self._database.close()
        self._turnstile.close()
        self._ringer.close()
        if self._given_up:
            self._bell.close()  # No other thread uses it.

    def _turn(self, first: _Job | None) -> bool:
        """Execute the queued jobs under the lock; return whether to continue."""
        if first is None:
            return False
        try:
            with self._turnstile:
                jobs, go_on = self._gather(first)
                answers, head = self._commit([job for job in jobs if isinstance(job.work, bytes)])
                for job in jobs:
                    if not isinstance(job.work, bytes):
                        answers.append(self._call(job, job.work))
        except OSError as error:
            # The lock cannot be acquired; all other errors are caught inside.
            self._take(first)
            answers, head, go_on = [(first, None, self._translate(error))], 0, True
        with suppress(RuntimeError):  # The loop is closed: no caller waits any more.
            self._loop.call_soon_threadsafe(self._settle, answers, head)
        if head:
            self._ring(head)
        return go_on

    def _gather(self, first: _Job) -> tuple[list[_Job], bool]:
        """Take queued jobs, within limits; return whether more may follow."""
        jobs: list[_Job] = []
        size = 0
        job: _Job | None = first
        while job is not None:
            if self._take(job):
                jobs.append(job)
                size += len(job.work) if isinstance(job.work, bytes) else 0
            if size > _GROUP_BYTES or len(jobs) >= _GROUP_ENTRIES:
                return jobs, True
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return jobs, True
        return jobs, False

    def _commit(self, jobs: list[_Job]) -> tuple[list[_Answer], int]:
        """Append in one transaction; return the results, and the last number on success."""
        if not jobs:
            return [], 0
        datas = [job.work for job in jobs if isinstance(job.work, bytes)]
        try:
            head = self._database.append(datas)
        except Exception as error:  # noqa: BLE001 (the proposer receives it)
            self._reconnect()
            return [(job, None, self._translate(error)) for job in jobs], 0
        numbers = range(head - len(jobs) + 1, head + 1)
        return [(job, number, None) for job, number in zip(jobs, numbers, strict=True)], head

    def _call(self, job: _Job, function: Callable[[Database], object]) -> _Answer:
        try:
            return job, function(self._database), None
        except Exception as error:  # noqa: BLE001 (the caller receives it)
            return job, None, self._translate(error)

    def _translate(self, error: Exception) -> Exception:
        if isinstance(error, sqlite3.Error | OSError):
            return translate(error, self._path)
        return error

    def _reconnect(self) -> None:
        """Reopen the file: a connection whose commit failed cannot be trusted."""
        with suppress(sqlite3.Error, Error):
            fresh = Database(self._path, self._durability)
            self._database, old = fresh, self._database
            old.close()

    def _ring(self, head: int) -> None:
        arrivals = self._turnstile.arrivals()
        if arrivals != self._arrivals:
            # If this fails, for example for lack of file descriptors, the next commit retries.
            with suppress(OSError):
                self._ringer.look_around()
                self._arrivals = arrivals
        self._ringer.ring(head)


def _make_folders(folder: Path) -> None:
    """Create the folder and its parents, and sync them so that they survive a power cut."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    for path in missing:
        sync_folder(path.parent)
