"""What a broker does beside answering clients, each in its own rhythm: one task for all.

A chore that fails is logged and tried again the next time; one that would harm is not possible,
since everything it decides goes through the cluster log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from rookery.errors import Error
from rookery.outage import Outage

log = logging.getLogger(__name__)


class Chores:
    """Runs functions again and again."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self.failing: dict[str, str] = {}
        """Why a chore failed the last time, by its name."""

    def every(self, interval_ms: int, name: str, chore: Callable[[], Awaitable[object]]) -> None:
        """Run a chore in so many milliseconds, and so on."""
        self._tasks.append(asyncio.create_task(self._repeat(interval_ms, name, chore)))

    async def stop(self) -> None:
        """Run nothing any more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(
        self, interval_ms: int, name: str, chore: Callable[[], Awaitable[object]]
    ) -> None:
        outage = Outage(log, name)
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await chore()
            except Exception as error:  # noqa: BLE001 (it is tried again, whatever it was)
                outage.fail(error)
                self.failing[name] = str(error) if isinstance(error, Error) else repr(error)
            else:
                outage.end()
                self.failing.pop(name, None)
