"""Ports for time and randomness, so that tests can control both.

No other module in the package asks the operating system for the time or for random bytes.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import sys
import time
from collections.abc import Callable
from typing import Final, NewType, Protocol

# Not the module-level generator: an application that seeds it must get a reproducible sequence,
# regardless of our threads.
_CHANCE = random.SystemRandom()

Time = NewType("Time", int)
"""Wall time: milliseconds since 1970-01-01 UTC, as in Kafka's timestamps."""

stopwatch: Final = time.perf_counter
"""Seconds for measurements that are only reported. No decision may depend on them."""


def loop_timer() -> Callable[[], float]:
    """Return a function that returns the time of the running event loop.

    It takes a sixth of the time of `loop_seconds`, for callers that ask at every request.
    """
    return asyncio.get_running_loop().time


def loop_seconds() -> float:
    """Return the time of the running event loop: the clock that its timers and timeouts use.

    Compute a deadline from this clock if a timer enforces it; otherwise use a `Clock`. A test
    controls this clock by running on a loop with virtual time.
    """
    return asyncio.get_running_loop().time()


class Clock(Protocol):
    """Wall time, monotonic time and boot time.

    The three clocks are not comparable. Wall time may jump when the system clock is set. The other
    two start at an arbitrary value and never decrease. Timestamps use wall time; deadlines use
    monotonic time. Use boot time for anything that is unsafe to trust after the machine was
    suspended.
    """

    def now_ms(self) -> Time:
        """Return the wall time."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since an unspecified moment; it never decreases."""

    def boottime_ms(self) -> int:
        """Return monotonic time that also passes while the machine is suspended."""


class Random(Protocol):
    """A source of unpredictable values."""

    def token(self, size: int) -> bytes:
        """Return that many bytes, fit for nonces, salts and ids."""

    def jitter(self, value: float, spread: float = 0.2) -> float:
        """Return the value moved at random by up to ± spread of itself."""


class SystemClock:
    """The machine's own clocks."""

    __slots__ = ()

    def now_ms(self) -> Time:
        """Return the wall time."""
        return Time(time.time_ns() // 1_000_000)

    def monotonic_ms(self) -> int:
        """Return milliseconds since an unspecified moment; it never decreases."""
        return time.monotonic_ns() // 1_000_000

    def boottime_ms(self) -> int:
        """Return monotonic time that also passes while the machine is suspended."""
        # On other platforms CLOCK_MONOTONIC of the C library counts suspended time; Python's may
        # not.
        clock = time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC
        return time.clock_gettime_ns(clock) // 1_000_000


class SystemRandom:
    """The machine's own source of randomness."""

    __slots__ = ()

    def token(self, size: int) -> bytes:
        """Return that many bytes, fit for nonces, salts and ids."""
        return secrets.token_bytes(size)

    def jitter(self, value: float, spread: float = 0.2) -> float:
        """Return the value moved at random by up to ± spread of itself."""
        # Spreads retries over time; nothing secret depends on it.
        return value * _CHANCE.uniform(1 - spread, 1 + spread)
