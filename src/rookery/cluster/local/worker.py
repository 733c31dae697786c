"""A thread that makes calls for an event loop, one after the other.

It has one queue and one hop back; an executor would add a second queue and two more futures.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Final, TypeVar, cast

from rookery.cluster.local.database import Database, translate
from rookery.cluster.port import Durability

T = TypeVar("T")
_Job = tuple[asyncio.Future[object], Callable[[Database], object]]

_END_SECONDS: Final = 10.0


class Worker:
    """Makes calls with the thread's own database connection, opened at the first call."""

    def __init__(self, name: str, path: Path, durability: Durability) -> None:
        self._path = path
        self._durability = durability
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        # A daemon, because a call that hangs on a dead disk must not keep the process alive.
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._database: Database | None = None
        self._thread.start()

    async def call(self, function: Callable[[Database], T]) -> T:
        """Call a function in the thread, and return its result or raise its exception."""
        future: asyncio.Future[object] = self._loop.create_future()
        self._jobs.put((future, function))
        return cast("T", await future)

    async def close(self) -> None:
        """Stop the thread after the pending calls."""
        self._jobs.put(None)
        await self._loop.run_in_executor(None, self._thread.join, _END_SECONDS)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function = job
            result, error = self._try(function)
            with suppress(RuntimeError):  # The loop is closed: no caller waits any more.
                self._loop.call_soon_threadsafe(settle, future, result, error)
        if self._database is not None:
            self._database.close()

    def _try(self, function: Callable[[Database], T]) -> tuple[T | None, Exception | None]:
        try:
            if self._database is None:
                self._database = Database(self._path, self._durability)
            return function(self._database), None
        except (sqlite3.Error, OSError) as error:
            return None, translate(error, self._path)
        except Exception as error:  # noqa: BLE001 (a thread's root: the caller receives it)
            return None, error


def settle(future: asyncio.Future[T], result: T, error: Exception | None) -> None:
    """Set a future's result or error, unless it is already done."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
