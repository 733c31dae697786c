"""Paces long work on the event loop so that clients do not notice it."""

from __future__ import annotations

import asyncio
from typing import Final

from rookery.clock import Clock

TURN_MS: Final = 5
"""How long work runs before other tasks get a turn."""


class LoopPace:
    """Yields to the event loop by time, not by the number of steps: their costs differ."""

    __slots__ = ("_clock", "_since_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms = clock.monotonic_ms()

    async def step(self) -> None:
        """Call this between two steps."""
        if self._clock.monotonic_ms() - self._since_ms >= TURN_MS:
            await asyncio.sleep(0)
            self._since_ms = self._clock.monotonic_ms()
