"""Waiters for the growth of the log, and the polling of the store on their behalf.

A store sends no notification when an object is created, so it is polled while there are waiters.
The next poll after an entry comes soon; the interval grows while the log is idle. An entry is
therefore detected with a delay of at most an eighth of the idle time before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from rookery.clock import loop_seconds
from rookery.errors import Unavailable

SLOWEST: Final = 10
"""The poll interval of an idle log is at most this many times the shortest one."""

_QUIET_SHARE: Final = 8


class Waiters:
    """The waiters' futures, by the number that each waiter already has."""

    def __init__(
        self, look: Callable[[], Awaitable[object]], poll_seconds: float, patience: float
    ) -> None:
        self._look = look
        self._poll_seconds = poll_seconds
        self._patience = patience
        self._loop = asyncio.get_running_loop()
        self._futures: dict[asyncio.Future[int], int] = {}
        self._poller: asyncio.Task[None] | None = None
        self._grown_at = loop_seconds()
        self._looked_at = float("-inf")
        self._moved = asyncio.Event()

    async def wait(self, after: int) -> int:
        """Return the first head above `after` that becomes known."""
        future: asyncio.Future[int] = self._loop.create_future()
        self._futures[future] = after
        if self._poller is None or self._poller.done():
            self._poller = self._loop.create_task(self._poll())
        try:
            return await future
        finally:
            del self._futures[future]

    def wake(self, head: int) -> None:
        """Wake the waiters that the new head satisfies."""
        self._grown_at = loop_seconds()
        self._moved.set()
        for future, after in self._futures.items():
            if after < head and not future.done():
                future.set_result(head)

    def note_poll(self) -> None:
        """Record that the store was just polled, which postpones the next poll."""
        self._looked_at = loop_seconds()

    def fail(self, error: Exception) -> None:
        """Fail all waiters with an error."""
        for future in self._futures:
            if not future.done():
                future.set_exception(error)

    async def close(self) -> None:
        """Stop polling."""
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.gather(self._poller, return_exceptions=True)

    async def _poll(self) -> None:
        failing_since: float | None = None
        while self._futures:
            await self._pause()
            try:
                await self._look()
                failing_since = None
            except Unavailable as error:
                self.note_poll()
                failing_since = failing_since or loop_seconds()
                if loop_seconds() - failing_since >= self._patience:
                    self.fail(error)
                    return
            except Exception as error:  # noqa: BLE001 (a task's root: the waiters receive it)
                self.fail(error)
                return

    async def _pause(self) -> None:
        """Wait until the next poll is due; an entry found in the meantime makes it due sooner."""
        while (left := self._looked_at + self._interval() - loop_seconds()) > 0:
            self._moved.clear()
            try:
                async with asyncio.timeout(left):
                    await self._moved.wait()
            except TimeoutError:
                return

    def _interval(self) -> float:
        quiet = loop_seconds() - self._grown_at
        wanted = max(self._poll_seconds, quiet / _QUIET_SHARE)
        return min(wanted, self._poll_seconds * SLOWEST)
