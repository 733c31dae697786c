"""Time and chance as ports, so that tests can move the one and fix the other.

Nothing else in the package asks the operating system for the time or for random bytes.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import sys
import time
from typing import Final, NewType, Protocol

# Not the module's own: who has seeded that gets his numbers, whatever threads of ours do.
_CHANCE = random.SystemRandom()

Time = NewType("Time", int)
"""Wall time: milliseconds since 1970-01-01 UTC, as in Kafka's timestamps."""

stopwatch: Final = time.perf_counter
"""Seconds for a measurement that is only reported. No decision may depend on it."""


def loop_seconds() -> float:
    """Return the time of the running event loop: the clock that its timers and timeouts use.

    A deadline that ends in a timer is computed from it; any other asks its `Clock`. A test moves
    it by running on a loop of virtual time.
    """
    return asyncio.get_running_loop().time()


class Clock(Protocol):
    """What time it is, and how much of it has passed.

    The answers are not comparable: wall time may jump (someone sets the clock), the others start
    anywhere but never go back. Timestamps are wall time; deadlines are monotonic. What would be
    unsafe to believe after the machine has slept is timed by boot time.
    """

    def now_ms(self) -> Time:
        """Return the wall time."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since an unspecified moment; it never decreases."""

    def boottime_ms(self) -> int:
        """Return monotonic time that also passes while the machine is suspended."""


class Random(Protocol):
    """Where unpredictable values come from."""

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
        # Elsewhere the monotonic clock of the C library counts sleep; Python's own may not.
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
