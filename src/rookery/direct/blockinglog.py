"""Runs asynchronous code for synchronous callers, on an event loop in a separate thread.

Spark's workers are such callers. A worker serves many tasks, so it keeps its logs open. The logs
are closed before Python exits: a client library's thread that delivers a response after that would
crash the process.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, Generic, TypeVar

from rookery.clock import SystemClock
from rookery.direct.log import DirectLog
from rookery.direct.place import ClusterAddress
from rookery.net.loop import loop_factory

T = TypeVar("T")

_LAST_SECONDS: Final = 3.0
"""The time limit for cleanup at process exit."""


class _Call(Generic[T]):
    """A coroutine that runs in one thread while another thread waits for its result.

    This is not a Future of `concurrent.futures`. A Future has a Condition, and an interrupt inside
    it leaves its lock held, so the other thread would wait forever. The queue operations used here
    are one instruction each. The task reference also stays on the thread that ran it: an interrupt
    that arrives while a task is being deallocated is lost.
    """

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._ended: SimpleQueue[tuple[BaseException | None, list[T]]] = SimpleQueue()

    def begin(self) -> None:
        """Start the task, on the loop."""
        self._task = asyncio.get_running_loop().create_task(self._work)
        self._task.add_done_callback(self._end)

    def give_up(self) -> None:
        """Cancel the task, on the loop; it has already started because calls run in order."""
        if self._task is not None:
            self._task.cancel()

    def interrupt(self) -> None:
        """Wake the waiting thread; can be called from any thread."""
        self._ended.put((CancelledError(), []))

    def result(self) -> T:
        """Wait for the result, in the calling thread."""
        error, results = self._ended.get()
        try:
            if error is not None:
                raise error
            return results[0]
        finally:
            del error  # it references this frame

    def _end(self, task: asyncio.Task[T]) -> None:
        self._task = None
        if task.cancelled():
            self.interrupt()
        elif (error := task.exception()) is not None:
            self._ended.put((error, []))
        else:
            self._ended.put((None, [task.result()]))


class LoopThread:
    """A thread that runs an event loop until the thread is closed."""

    def __init__(self, name: str = "rookery-direct") -> None:
        self._loop = loop_factory()()
        self._calls: set[_Call[Any]] = set()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, wait for it and return its result.

        Raises:
            CancelledError: another thread called `interrupt`.
        """
        call = _Call(work)
        self._calls.add(call)
        try:
            self._loop.call_soon_threadsafe(call.begin)
            return call.result()
        except BaseException:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(call.give_up)  # no caller waits for it
            raise
        finally:
            self._calls.discard(call)

    def interrupt(self) -> None:
        """Wake all threads that wait in `run`."""
        for call in list(self._calls):
            call.interrupt()

    def iterate(self, items: Callable[[], AsyncIterator[T]]) -> Generator[T, None, None]:
        """Yield the items of an asynchronous iterator that runs on the loop."""
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

    def finish(self, work: Coroutine[Any, Any, object]) -> None:
        """Start the shutdown: run a last coroutine, ignore its outcome, and stop; `join` waits."""
        try:
            self._loop.call_soon_threadsafe(self._begin_last, work)
        except RuntimeError:  # the loop is already closed
            work.close()

    def join(self, seconds: float) -> None:
        """Wait for the thread to end, up to a time limit."""
        self._thread.join(seconds)

    def _begin_last(self, work: Coroutine[Any, Any, object]) -> None:
        self._last = self._loop.create_task(self._run_last(work))

    async def _run_last(self, work: Coroutine[Any, Any, object]) -> None:
        with suppress(Exception):
            await asyncio.wait_for(work, _LAST_SECONDS)
        self._loop.stop()


class BlockingLog:
    """A log on its own event loop, for synchronous callers."""

    def __init__(self, place: ClusterAddress, purpose: str = "direct") -> None:
        """Open the log.

        Raises:
            ConfigError, Corrupt, Unavailable: as `DirectLog.open`.
        """
        self._thread = LoopThread()
        try:
            self.log = self._thread.run(_open(place, purpose))
            """The log; run its coroutines only through `run`."""
        except BaseException:
            self._thread.close()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the log and return its result."""
        return self._thread.run(work)

    def iterate(self, items: Callable[[], AsyncIterator[T]]) -> Iterator[T]:
        """Yield the items of an asynchronous iterator of the log."""
        return self._thread.iterate(items)

    def close(self) -> None:
        """Close the log and its thread."""
        try:
            self._thread.run(self.log.close())
        finally:
            self._thread.close()

    def finish(self) -> LoopThread:
        """Start closing the log at process exit; return the thread that closes it."""
        self._thread.finish(self.log.close())
        return self._thread

    def __enter__(self) -> BlockingLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _open(place: ClusterAddress, purpose: str) -> DirectLog:
    opened = DirectLog(place, purpose)
    try:
        await opened.start()
    except BaseException:
        await opened.close()
        raise
    return opened


class SharedLogs(Generic[T]):
    """Resources that this process opens once per place and keeps; a fork opens its own."""

    def __init__(
        self,
        make: Callable[[ClusterAddress], T],
        finish: Callable[[T], LoopThread],
        is_usable: Callable[[T], bool] = lambda _: True,
    ) -> None:
        self._make = make
        self._finish = finish
        self._is_usable = is_usable
        self._made: dict[ClusterAddress, T] = {}
        self._pid = 0
        self._lock = threading.Lock()

    def get(self, place: ClusterAddress) -> T:
        """Return the resource for a place; open it if needed."""
        with self._lock:
            if self._pid != os.getpid():
                # Threads do not survive a fork, so resources that the parent opened are unusable
                # here.
                self._made, self._pid = {}, os.getpid()
                _at_end(self._finish_all)
            made = self._made.get(place)
            if made is None or not self._is_usable(made):
                made = self._made[place] = self._make(place)
            return made

    def _finish_all(self) -> None:
        if self._pid != os.getpid():
            return
        clock = SystemClock()
        end = clock.monotonic_ms() + _LAST_SECONDS * 1000
        for thread in [self._finish(log) for log in self._made.values()]:
            thread.join(max(end - clock.monotonic_ms(), 0) / 1000)


def _at_end(work: Callable[[], None]) -> None:
    """Register work to run before Python exits, while executors still accept work."""
    register: Callable[[Callable[[], None]], object]
    register = getattr(threading, "_register_atexit", atexit.register)
    with suppress(RuntimeError):  # Python is already exiting
        register(work)


_KEPT: SharedLogs[BlockingLog] = SharedLogs(
    BlockingLog, BlockingLog.finish, lambda opened: opened.log.is_usable
)


def open_shared(place: ClusterAddress) -> BlockingLog:
    """Return this process's open log at a place; it stays open until the process exits."""
    return _KEPT.get(place)
