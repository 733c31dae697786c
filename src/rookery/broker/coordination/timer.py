"""One event-loop timer for the deadlines of all keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Generic

from rookery.broker.coordination.deadlines import Deadlines
from rookery.broker.coordination.seats import Key
from rookery.clock import Clock

# While there are deadlines, the clock is read at least this often …
_LOOK_MS: Final = 1_000
# … so a gap of this length means that the process or its host was suspended.
_STANDSTILL_MS: Final = 3_000
# The maximum number of keys that get a tick per event-loop iteration.
_TICKS: Final = 25


class DeadlineTimer(Generic[Key]):
    """Calls back for each key whose deadline has passed.

    Time in which this process did not run does not count, since heartbeats may have been waiting
    unread in its sockets.
    """

    def __init__(self, clock: Clock, tick: Callable[[Key], None]) -> None:
        """Start without deadlines.

        Args:
            clock: its monotonic time is used.
            tick: called with each key that is due.
        """
        self._clock = clock
        self._tick = tick
        self._deadlines: Deadlines[Key] = Deadlines()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms = 0
        self._last_ms = clock.monotonic_ms()
        self._stood_still_ms = 0
        self._is_stopped = False

    def now_ms(self) -> int:
        """Return the monotonic time without the periods in which this process did not run."""
        real = self._clock.monotonic_ms()
        gap, self._last_ms = real - self._last_ms, real
        if gap > _STANDSTILL_MS:
            self._stood_still_ms += gap
        return real - self._stood_still_ms

    def set(self, key: Key, due_ms: int | None) -> None:
        """Set the deadline of a key, replacing any earlier one; None removes it."""
        if due_ms is None:
            self._deadlines.cancel(key)
            return
        self._deadlines.set(key, due_ms)
        if self._timer is None or due_ms < self._armed_ms:
            self._arm()

    def stop(self) -> None:
        """Stop calling back."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """Call back for keys that are due."""
        self._timer = None
        # The rest is due immediately, after other tasks have run.
        for key in self._deadlines.take(self.now_ms(), _TICKS):
            self._tick(key)
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self._deadlines.next_ms
        if due_ms is None or self._is_stopped:
            return
        now_ms = self.now_ms()
        self._armed_ms = min(max(due_ms, now_ms), now_ms + _LOOK_MS)
        seconds = (self._armed_ms - now_ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self.look)
