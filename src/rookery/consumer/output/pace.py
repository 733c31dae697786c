"""Replays at the speed of the recording: rows are released when they are due."""

from __future__ import annotations

import numpy as np

from rookery.clock import Clock
from rookery.consumer.checkpoint import NO_TIME
from rookery.consumer.order.ready import ReadyRows


class ReplayPace:
    """When rows are due: the first immediately, the others after their original distance to it."""

    def __init__(self, speed: float | None, clock: Clock) -> None:
        self._speed = speed
        self._clock = clock
        self._began: tuple[int, int] | None = None

    def may_go(self, ready: ReadyRows) -> bool:
        """Return whether the first waiting row is due."""
        return self._speed is None or self.limit(ready, 1) > 0

    def limit(self, ready: ReadyRows, size: int) -> int:
        """Return how many of the first rows are due."""
        if self._speed is None or not size:
            return size
        keys = ready.peek(size).keys
        first = int(keys[0])
        now = self._clock.monotonic_ms()
        if self._began is None:
            if first == NO_TIME:
                return int(np.count_nonzero(keys == NO_TIME))
            self._began = now, first
        began, key = self._began
        due = key + int((now - began) * self._speed)
        return int(np.searchsorted(keys, due, "right"))
