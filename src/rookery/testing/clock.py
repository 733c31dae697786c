"""A clock that stands still until a test moves it, and chance that repeats itself."""

from __future__ import annotations

import random

from rookery.clock import Time


class ManualClock:
    """A clock moved by hand; its times start apart, so mixing them up shows."""

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
        """Return the monotonic time and all that was slept through."""
        return self._monotonic_ms + self._suspended_ms

    def advance(self, ms: int) -> None:
        """Let time pass on all clocks."""
        if ms < 0:
            raise ValueError(f"time cannot pass backwards ({ms} ms); use set_wall to turn it back")
        self._now_ms += ms
        self._monotonic_ms += ms

    def suspend(self, ms: int) -> None:
        """Let the machine sleep: the monotonic clock stands still meanwhile."""
        self._now_ms += ms
        self._suspended_ms += ms

    def set_wall(self, now_ms: int) -> None:
        """Set the wall clock, forwards or backwards, as an operator may; no time passes."""
        self._now_ms = now_ms


class SeededRandom:
    """Randomness that repeats itself for the same seed. Never use it for real secrets."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def token(self, size: int) -> bytes:
        """Return that many bytes."""
        return self._random.randbytes(size)

    def jitter(self, value: float, spread: float = 0.2) -> float:
        """Return the value moved by up to ± spread of itself."""
        return value * self._random.uniform(1 - spread, 1 + spread)
