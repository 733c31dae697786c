"""One timer that watches one connection: who keeps us waiting for too long is given up.

It is armed again when it fires, never when something arrives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rookery.clock import loop_seconds
from rookery.net.connectionstate import Wait


class Watch:
    """Measures the present wait, and says when it has lasted too long."""

    __slots__ = ("_expire", "_loop", "_present", "_since", "_step", "_timer")

    def __init__(
        self, present: Callable[[], Wait | None], expire: Callable[[Wait], None], step_ms: int
    ) -> None:
        """Watch nothing yet.

        Args:
            present: tells what is waited for; None if it is we who keep the client waiting.
            expire: called once, when that has taken too long.
            step_ms: how often to look, at least.
        """
        self._present = present
        self._expire = expire
        self._step = step_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._since = loop_seconds()
        self._timer: asyncio.TimerHandle | None = None

    def touch(self) -> None:
        """Begin a new wait."""
        self._since = loop_seconds()

    def begin(self) -> None:
        """Begin a new wait, and to watch."""
        self.touch()
        self._look()

    def look_after(self, delay_ms: int) -> None:
        """Begin a new wait, and look at it after so long."""
        self.touch()
        self.stop()
        self._timer = self._loop.call_later(delay_ms / 1000, self._look)

    def stop(self) -> None:
        """Do not look, until asked to again."""
        if self._timer is not None:
            self._timer.cancel()

    def close(self) -> None:
        """Watch no more, and let go of the connection, which lets go of this."""
        self.stop()
        self._present = _nothing
        self._expire = _ignore

    def _look(self) -> None:
        now = loop_seconds()
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
    """Wait for nothing."""


def _ignore(_wait: Wait) -> None:
    """Leave it at that."""
