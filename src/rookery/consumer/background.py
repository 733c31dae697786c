"""The thread that runs a stream's connections, and its shutdown."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from rookery.consumer.faults import Misuse
from rookery.consumer.fetch.source import RowSource
from rookery.direct.blockinglog import LoopThread

T = TypeVar("T")


class Background(LoopThread):
    """An event loop in its own thread; its source and tasks are closed with it."""

    def __init__(self) -> None:
        super().__init__("rookery-consumer")
        self._source: RowSource | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_over = False
        self._pid = os.getpid()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop, wait for it and return its result.

        Raises:
            Misuse: the stream is closed, or was closed while the coroutine ran.
        """
        if self._is_over:
            work.close()
            raise Misuse("the stream is closed; make another one")
        try:
            return super().run(work)
        except CancelledError:
            raise Misuse("the stream was closed meanwhile; make another one") from None

    async def own(self, source: RowSource) -> None:
        """Register the source that `end` closes."""
        self._source = source

    async def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that `end` cancels."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def is_of_parent(self) -> bool:
        """Whether this process was forked later: its parent has the threads and the sockets."""
        return os.getpid() != self._pid

    def end(self) -> None:
        """Close everything; wait for it unless called from the loop's own thread."""
        if self._is_over or self.is_of_parent:
            return
        self._is_over = True
        self.interrupt()
        if threading.current_thread() is self._thread:
            # The garbage collector may call this from any thread, including this one.
            self._ending = asyncio.ensure_future(self._end_and_stop())
            return
        try:
            super().run(self._end())
        finally:
            self.close()
            self.interrupt()

    async def _end_and_stop(self) -> None:
        await self._end()
        asyncio.get_running_loop().stop()

    async def _end(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._source is not None:
            await self._source.close()
