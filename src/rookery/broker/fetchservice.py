"""What the fetches of all clients share: sessions, the reader, and a bound on reads from disk."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from rookery.broker.fetchsession import WatchingSessions
from rookery.broker.waiting import Waiting
from rookery.clock import Clock, Random
from rookery.cluster.replica import Replica
from rookery.log.reader import Reader
from rookery.log.rereads import SureReader

# Partitions that are read from disk at the same time, for all clients together.
_READS_AT_ONCE: Final = 16


class FetchService:
    """The shared side of fetches; one for each broker."""

    def __init__(
        self, waiting: Waiting, reader: Reader, replica: Replica, clock: Clock, random: Random
    ) -> None:
        """Begin without sessions.

        Args:
            waiting: the fetches that wait, and the subscriptions of sessions.
            reader: reads the log.
            replica: knows where records are stored now, if a read finds them moved.
            clock: ages sessions.
            random: draws the ids of sessions.
        """
        self.sessions = WatchingSessions(waiting, clock, random)
        self.reader = SureReader(reader, replica)
        self.disk = asyncio.Semaphore(_READS_AT_ONCE)
        """Held while one partition is read from disk."""
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what a fetch has left to do, and keep the task alive until it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
