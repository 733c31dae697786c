"""A clock that only the test advances, and reproducible randomness."""

from __future__ import annotations

import random

from rookery.clock import Time


class ManualClock:
    """A manual clock; its times start at different values, so that a test detects a mix-up."""

    def __init__(self, now_ms: int = 1_700_000_000_000, monotonic_ms: int = 1_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._suspended_ms = 500_000

    def now_ms(self) -> Time:
        """Return the wall time."""
        return Time(self._now_ms)

    def monotonic_ms(self) -> int:
        """Return the monotonic time."""
        return self._monotonic_ms

    def boottime_ms(self) -> int:
        """Return the monotonic time plus the time that the machine was suspended."""
        return self._monotonic_ms + self._suspended_ms

    def advance(self, ms: int) -> None:
        """Let time pass on all clocks."""
        if ms < 0:
            raise ValueError(f"time cannot pass backwards ({ms} ms); use set_wall to turn it back")
        self._now_ms += ms
        self._monotonic_ms += ms

    def suspend(self, ms: int) -> None:
        """Simulate a suspended machine: the monotonic clock does not advance."""
        self._now_ms += ms
        self._suspended_ms += ms

    def set_wall(self, now_ms: int) -> None:
        """Set the wall clock, forwards or backwards, as an operator may; no time passes."""
        self._now_ms = now_ms


class SeededRandom:
    """Randomness that is equal for equal seeds. Never use it for real secrets."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def token(self, size: int) -> bytes:
        """Return that many bytes."""
        return self._random.randbytes(size)

    def jitter(self, value: float, spread: float = 0.2) -> float:
        """Return the value moved by up to ± spread of itself."""
        return value * self._random.uniform(1 - spread, 1 + spread)
