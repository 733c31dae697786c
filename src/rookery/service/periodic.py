"""Periodic tasks of a process, each with its own interval.

A task that fails is logged and runs again at its next turn. Its failure is kept until it succeeds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from rookery.errors import Error
from rookery.outage import Outage

log = logging.getLogger(__name__)


class PeriodicTasks:
    """Runs functions at fixed intervals, one asyncio task for each."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self.failing: dict[str, str] = {}
        """The error of each task whose last run failed, by name."""

    def every(self, interval_ms: int, name: str, run: Callable[[], Awaitable[object]]) -> None:
        """Run a function at this interval; the first time after one interval."""
        self._tasks.append(asyncio.create_task(self._repeat(interval_ms, name, run)))

    async def stop(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(
        self, interval_ms: int, name: str, run: Callable[[], Awaitable[object]]
    ) -> None:
        outage = Outage(log, name)
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await run()
            except Exception as error:  # noqa: BLE001 (it runs again, whatever the error was)
                outage.fail(error)
                self.failing[name] = str(error) if isinstance(error, Error) else repr(error)
            else:
                outage.end()
                self.failing.pop(name, None)
