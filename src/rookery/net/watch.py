"""One timer per connection: detects clients that exceed a time limit.

It is rearmed when it fires, never when data arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rookery.clock import loop_timer
from rookery.net.connectionstate import Wait


class Watch:
    """Measures the current wait, and reports when it has lasted too long."""

    __slots__ = ("_expire", "_loop", "_now", "_present", "_since", "_step", "_timer")

    def __init__(
        self, present: Callable[[], Wait | None], expire: Callable[[Wait], None], step_ms: int
    ) -> None:
        """Start without a wait.

        Args:
            present: returns the current wait; None if the client waits for this server.
            expire: called once, when the wait has lasted too long.
            step_ms: the maximum interval between checks.
        """
        self._present = present
        self._expire = expire
        self._step = step_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._now = loop_timer()
        self._since = self._now()
        self._timer: asyncio.TimerHandle | None = None

    def touch(self) -> None:
        """Start a new wait."""
        self._since = self._now()

    def note(self, moment: float) -> None:
        """Start a new wait at a moment in the past, unless a later one has begun."""
        self._since = max(self._since, moment)

    def begin(self) -> None:
        """Start a new wait, and start the timer."""
        self.touch()
        self._look()

    def look_after(self, delay_ms: int) -> None:
        """Start a new wait, and check it after a delay."""
        self.touch()
        self.stop()
        self._timer = self._loop.call_later(delay_ms / 1000, self._look)

    def stop(self) -> None:
        """Stop the checks, until restarted."""
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        """Stop the timer, and drop the references to the connection, which would form a cycle."""
        self.stop()
        self._present = _nothing
        self._expire = _ignore

    def _look(self) -> None:
        now = self._now()
        next_look = now + self._step
        wait = self._present()
        if wait is not None:
            deadline = self._since + wait.patience_ms / 1000
            if now >= deadline:
                self._expire(wait)
                return
            next_look = min(next_look, deadline)
        self._timer = self._loop.call_at(next_look, self._look)


def _nothing() -> None:
    """Return no wait: the connection is closed."""


def _ignore(_wait: Wait) -> None:
    """Do nothing: the connection is closed."""
