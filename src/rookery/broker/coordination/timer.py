"""Gives machines the time: one timer of the event loop for the deadlines of all keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Generic

from rookery.broker.coordination.deadlines import Deadlines
from rookery.broker.coordination.seats import Key
from rookery.clock import Clock

# While something has a deadline, we look at the clock this often at least …
_LOOK_MS: Final = 1_000
# … so that after such a gap this process, or its machine, must have stood still.
_STANDSTILL_MS: Final = 3_000
# Keys that get a tick in one turn of the event loop.
_TICKS: Final = 25


class DeadlineTimer(Generic[Key]):
    """Calls back for each key whose deadline has passed.

    Time in which this process did not run does not count, since heartbeats may have waited unread
    in its sockets meanwhile.
    """

    def __init__(self, clock: Clock, tick: Callable[[Key], None]) -> None:
        """Start with no deadline.

        Args:
            clock: the monotonic one counts.
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
        """Return the time that has passed for members: monotonic, without standstills."""
        real = self._clock.monotonic_ms()
        gap, self._last_ms = real - self._last_ms, real
        if gap > _STANDSTILL_MS:
            self._stood_still_ms += gap
        return real - self._stood_still_ms

    def set(self, key: Key, due_ms: int | None) -> None:
        """Let a key be due at that moment and no other; None for never."""
        if due_ms is None:
            self._deadlines.cancel(key)
            return
        self._deadlines.set(key, due_ms)
        if self._timer is None or due_ms < self._armed_ms:
            self._arm()

    def stop(self) -> None:
        """Call back no more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def look(self) -> None:
        """Call back for keys that are due."""
        self._timer = None
        # The rest is due at once, after other tasks had their turn.
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
