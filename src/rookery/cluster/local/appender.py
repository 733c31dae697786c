"""The one thread of a handle that writes: it gathers, locks, commits, answers, then rings.

    append ──► queue ──► turnstile ──► all that has queued up, in one transaction ──► answers
                                                                          └──► the others' bells

It takes from the queue after it has got the lock, so that whoever has to wait for other processes
commits everything that came meanwhile.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, TypeVar, cast

from rookery.cluster.local.database import Database, sync_folder, translated
from rookery.cluster.local.doorbell import Bell, Ringer
from rookery.cluster.local.turnstile import Turnstile
from rookery.cluster.local.worker import settle
from rookery.cluster.port import Durability
from rookery.errors import Error, Unavailable

T = TypeVar("T")

_GROUP_ENTRIES: Final = 32
_GROUP_BYTES: Final = 1024 * 1024
_TICKS: Final = 2


class _Append:
    """An entry on its way, and who waits for its number."""

    __slots__ = ("data", "future", "taken", "tick")

    def __init__(self, data: bytes, future: asyncio.Future[int], tick: int) -> None:
        self.data = data
        self.future = future
        self.tick = tick
        self.taken = False


_Call = tuple[asyncio.Future[object], Callable[[Database], object]]
_Job = _Append | _Call | None
# What a turn at the lock came to: appends and their last number or error; calls and theirs.
_Outcome = tuple[list[_Append], int, Error | None]
_Answer = tuple[asyncio.Future[object], object, Exception | None]


class Appender:
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
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._mutex = threading.Lock()
        self._opened = threading.Event()
        self._failure: Exception | None = None
        self._waiting: dict[_Append, None] = {}
        self._tick = 0
        self._timer: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._work, name="cluster-append", daemon=True)

    def open(self) -> Bell:
        """Create or open the log, and hang up this handle's bell."""
        self._thread.start()
        if not self._opened.wait(self._patience):
            self._jobs.put(None)
            raise self._locked()
        if self._failure is not None:
            raise self._failure
        return self._bell

    async def append(self, data: bytes) -> int:
        """Commit an entry together with whatever else waits; return its number."""
        job = _Append(data, self._loop.create_future(), self._tick)
        self._waiting[job] = None
        if self._timer is None:
            self._arm()
        self._jobs.put(job)
        return await job.future

    async def call(self, function: Callable[[Database], T]) -> T:
        """Call a function in the thread while it holds the lock."""
        future: asyncio.Future[object] = self._loop.create_future()
        self._jobs.put((future, function))
        return cast("T", await future)

    async def close(self) -> None:
        """Carry out what waits, then end."""
        self._jobs.put(None)
        await self._loop.run_in_executor(None, self._thread.join, 2 * self._patience)
        if self._timer is not None:
            self._timer.cancel()

    # On the event loop.

    def _arm(self) -> None:
        self._timer = self._loop.call_later(self._patience / _TICKS, self._lose_patience)

    def _lose_patience(self) -> None:
        """Fail appends that still wait for the lock: a stopped process may hold it for ever."""
        self._timer = None
        self._tick += 1
        for job in list(self._waiting):
            if self._tick - job.tick > _TICKS and self._take(job):
                del self._waiting[job]
                settle(job.future, 0, self._locked())
        if self._waiting:
            self._arm()

    def _settle(self, outcome: _Outcome, answers: list[_Answer]) -> None:
        jobs, last, error = outcome
        first = last - len(jobs) + 1
        for index, job in enumerate(jobs):
            self._waiting.pop(job, None)
            settle(job.future, first + index, error)
        for future, result, failure in answers:
            settle(future, result, failure)
        if jobs and error is None:
            self._when_done(last)

    def _take(self, job: _Append) -> bool:
        """Decide, once for both threads, who deals with a job: it is committed or given up."""
        with self._mutex:
            if job.taken:
                return False
            job.taken = True
            return not job.future.cancelled()

    def _locked(self) -> Unavailable:
        return Unavailable(
            f"{self._path}: another process has held the log for {self._patience:g} s, or the "
            f"disk hangs; nothing was appended. Look for a stopped process that has "
            f"{self._folder / 'lock'} open"
        )

    # In the thread.

    def _work(self) -> None:
        try:
            self._start()
        except (sqlite3.Error, OSError) as error:
            self._failure = translated(error, self._path)
        except Exception as error:  # noqa: BLE001 (a thread's root: whoever opens shall see it)
            self._failure = error
        self._opened.set()
        if self._failure is None:
            self._lay_out()
            while self._turn(self._jobs.get()):
                pass
            self._stop()

    def _start(self) -> None:
        _make_folders(self._folder)
        self._turnstile = Turnstile(self._folder)
        try:
            with self._turnstile:
                # The file holds secrets; SQLite gives its side files the same rights.
                if not self._path.exists():
                    self._path.touch(mode=0o600)
                self._database = Database(self._path, self._durability)
                self._database.create()
                self._bell = Bell(self._folder)
                self._ringer = Ringer(self._folder, self._bell.name)
                self._ringer.sweep()
                self._ringer.look_around()
                # Last: who sees the arrival finds the bell.
                self._turnstile.count_arrival()
                self._arrivals = self._turnstile.arrivals()
        except BaseException:
            self._turnstile.close()
            raise

    def _lay_out(self) -> None:
        # It only makes syncs faster: where it cannot be done, the log works as well.
        if self._durability == "disk":
            with self._turnstile, suppress(OSError):
                self._database.lay_out()

    def _stop(self) -> None:
        # The last one to close copies the WAL into the file, which no one else may disturb.
        with self._turnstile:
            self._database.close()
        self._turnstile.close()
        self._ringer.close()

    def _turn(self, first: _Job) -> bool:
        """Do what waits, under the lock; tell whether to go on."""
        if first is None:
            return False
        with self._turnstile:
            appends, calls, go_on = self._gather(first)
            outcome = self._commit(appends)
            answers = [self._answer(call) for call in calls]
        with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
            self._loop.call_soon_threadsafe(self._settle, outcome, answers)
        if appends:
            self._ring()
        return go_on

    def _gather(self, first: _Job) -> tuple[list[_Append], list[_Call], bool]:
        appends: list[_Append] = []
        calls: list[_Call] = []
        size = 0
        job = first
        with suppress(Empty):
            while job is not None:
                if not isinstance(job, _Append):
                    calls.append(job)
                elif self._take(job):
                    appends.append(job)
                    size += len(job.data)
                if size > _GROUP_BYTES or len(appends) + len(calls) >= _GROUP_ENTRIES:
                    return appends, calls, True
                job = self._jobs.get_nowait()
            return appends, calls, False
        return appends, calls, True

    def _commit(self, jobs: list[_Append]) -> _Outcome:
        if not jobs:
            return jobs, 0, None
        try:
            return jobs, self._database.append([job.data for job in jobs]), None
        except (sqlite3.Error, OSError) as error:
            self._reconnect()
            return jobs, 0, translated(error, self._path)

    def _answer(self, call: _Call) -> _Answer:
        future, function = call
        try:
            return future, function(self._database), None
        except (sqlite3.Error, OSError) as error:
            return future, None, translated(error, self._path)
        except Exception as error:  # noqa: BLE001 (whoever called shall see it)
            return future, None, error

    def _reconnect(self) -> None:
        """Start from what the file says: a connection whose commit failed is not to be trusted."""
        with suppress(sqlite3.Error, Error):
            fresh = Database(self._path, self._durability)
            self._database, old = fresh, self._database
            old.close()

    def _ring(self) -> None:
        arrivals = self._turnstile.arrivals()
        if arrivals != self._arrivals:
            self._ringer.look_around()
            self._arrivals = arrivals
        self._ringer.ring()


def _make_folders(folder: Path) -> None:
    """Make the folder and those above it, so that a power cut cannot take them away again."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    for path in missing:
        sync_folder(path.parent)
