"""An event loop whose time is virtual: a test of minutes ends in milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from rookery.testing.clock import ManualClock

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Adds up how long it would have waited for timers, and moves a clock by as much."""

    def __init__(self, clock: ManualClock | None) -> None:
        super().__init__()
        self.waited = 0.0
        self._clock = clock
        self._counted_ms = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready now; wait only if no timer would ever end the wait."""
        if timeout is None:
            return super().select(None)
        self.waited += timeout
        passed_ms = int(self.waited * 1000) - self._counted_ms
        if self._clock is not None and passed_ms > 0:
            self._clock.advance(passed_ms)
            self._counted_ms += passed_ms
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes when all tasks wait, and only then."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        """Begin at zero.

        Args:
            clock: moves along with the loop's time.
        """
        self._passed = _Selector(clock)
        super().__init__(self._passed)

    def time(self) -> float:
        """Return the seconds that have passed."""
        return self._passed.waited


def run_virtually(call: Coroutine[Any, Any, T], clock: ManualClock | None = None) -> T:
    """Run a coroutine to its end in virtual time; the clock moves along.

    It must wait for nothing but timers and other coroutines: a thread's work takes no virtual time.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        return runner.run(call)
