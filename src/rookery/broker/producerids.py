"""Producer ids for this broker's clients, allocated from the cluster in blocks."""

from __future__ import annotations

import asyncio
from typing import Final

from rookery.cluster.events.logevents import ProducerIdsAllotted
from rookery.cluster.replica import Replica

_RUN: Final = 1000


class ProducerIds:
    """Hands out unique producer ids."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._next = self._end = 0
        self._refill = asyncio.Lock()

    async def take(self) -> int:
        """Return a new id."""
        if self._next == self._end:
            async with self._refill:
                if self._next == self._end:
                    [outcome] = await self._replica.propose([ProducerIdsAllotted(count=_RUN)])
                    self._next, self._end = outcome.value, outcome.value + _RUN
        taken = self._next
        self._next += 1
        return taken
