"""Records sent at an even pace."""

from __future__ import annotations

import asyncio
from typing import Final

from rookery.clock import loop_seconds

_SOONEST: Final = 0.001


class SendPace:
    """Delays records so that a given number per second is sent; 0 delays none."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._start = 0.0

    async def wait(self, number: int) -> None:
        """Wait until the record with this number is due; the first one starts the time."""
        if not self._per_second:
            return
        if number == 0:
            self._start = loop_seconds()
        early = self._start + number / self._per_second - loop_seconds()
        # A wait that is too short for a timer is left to the next record.
        if early > _SOONEST:
            await asyncio.sleep(early)
