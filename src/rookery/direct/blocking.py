"""Asynchronous code for callers that are not: an event loop in a thread of its own.

Spark's workers are such callers. A worker serves many tasks, so it keeps its open logs.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

from rookery.direct.log import DirectLog
from rookery.direct.place import Place
from rookery.net.loop import loop_factory

T = TypeVar("T")


class LoopThread:
    """A thread that runs an event loop until it is closed."""

    def __init__(self, name: str = "rookery-direct") -> None:
        self._loop = loop_factory()()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there; wait for it and return what it returns."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # nobody waits for it any more
            raise

    def iterate(self, items: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """Yield what an asynchronous iterator yields, which lives on the loop."""
        iterator = items()
        try:
            while True:
                try:
                    yield self.run(anext(iterator))  # type: ignore[arg-type] # it is a coroutine
                except StopAsyncIteration:
                    return
        finally:
            close = getattr(iterator, "aclose", None)
            if close is not None:
                self.run(close())

    def close(self) -> None:
        """Stop the loop and wait for the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class BlockingLog:
    """A log on a loop of its own, for synchronous callers."""

    def __init__(self, place: Place, purpose: str = "direct") -> None:
        """Open it.

        Raises:
            ConfigError, Corrupt, Unavailable: as `DirectLog.open`.
        """
        self._thread = LoopThread()
        try:
            self.log = self._thread.run(_opened(place, purpose))
            """The log; its coroutines are for `run` alone."""
        except BaseException:
            self._thread.close()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the log's; return what it returns."""
        return self._thread.run(work)

    def iterate(self, items: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """Yield what an asynchronous iterator of the log's yields."""
        return self._thread.iterate(items)

    def close(self) -> None:
        """Close the log and its thread."""
        try:
            self._thread.run(self.log.close())
        finally:
            self._thread.close()

    def __enter__(self) -> BlockingLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _opened(place: Place, purpose: str) -> DirectLog:
    opened = DirectLog(place, purpose)
    try:
        await opened.start()
    except BaseException:
        await opened.close()
        raise
    return opened


class Kept(Generic[T]):
    """What this process opens once and keeps; a process that was forked opens its own."""

    def __init__(
        self, make: Callable[[Place], T], is_usable: Callable[[T], bool] = lambda _: True
    ) -> None:
        self._make = make
        self._is_usable = is_usable
        self._made: dict[Place, T] = {}
        self._pid = 0
        self._lock = threading.Lock()

    def get(self, place: Place) -> T:
        """Return the one for a place."""
        with self._lock:
            if self._pid != os.getpid():
                # Threads do not survive a fork: what the parent had open is of no use here.
                self._made, self._pid = {}, os.getpid()
            made = self._made.get(place)
            if made is None or not self._is_usable(made):
                made = self._made[place] = self._make(place)
            return made


_KEPT: Kept[BlockingLog] = Kept(BlockingLog, lambda one: not one.log.is_foreign)


def shared(place: Place) -> BlockingLog:
    """Return this process's open log at a place; it stays open until the process ends."""
    return _KEPT.get(place)
