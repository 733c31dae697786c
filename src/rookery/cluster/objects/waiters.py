"""Those who wait for the log to grow, and the looks at the store that someone must take for them.

Nothing in a store rings when an object is created: while someone waits, the store is asked again
and again. Right after an entry the next look comes soon; the longer it has been quiet the later,
so that an entry is seen late by no more than an eighth of the quiet before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from rookery.clock import loop_seconds
from rookery.errors import Unavailable

SLOWEST: Final = 10
"""A quiet log is looked at so many times less often than one that has just grown."""

_QUIET_SHARE: Final = 8


class Waiters:
    """Futures of those who wait, by the number that they have already."""

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
        """Tell those who wait for it that the log has grown."""
        self._grown_at = loop_seconds()
        self._moved.set()
        for future, after in self._futures.items():
            if after < head and not future.done():
                future.set_result(head)

    def looked(self) -> None:
        """Note that someone has just looked: the next look can wait."""
        self._looked_at = loop_seconds()

    def fail(self, error: Exception) -> None:
        """Tell all who wait that it is no use."""
        for future in self._futures:
            if not future.done():
                future.set_exception(error)

    async def close(self) -> None:
        """Stop looking."""
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
                self.looked()
                failing_since = failing_since or loop_seconds()
                if loop_seconds() - failing_since >= self._patience:
                    self.fail(error)
                    return
            except Exception as error:  # noqa: BLE001 (a task's root: whoever waits shall see it)
                self.fail(error)
                return

    async def _pause(self) -> None:
        """Wait until the next look is due; an entry that is met meanwhile makes that sooner."""
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
