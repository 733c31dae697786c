"""Records sent at an even pace."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final

_SOONEST: Final = 0.001


class SendPace:
    """Lets a given number through in a second; 0 lets all through."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._start = perf_counter()

    async def wait(self, number: int) -> None:
        """Wait until it is this number's turn."""
        if not self._per_second:
            return
        if number == 0:
            self._start = perf_counter()
        early = self._start + number / self._per_second - perf_counter()
        # Shorter waits than a timer can keep are caught up by the next.
        if early > _SOONEST:
            await asyncio.sleep(early)
