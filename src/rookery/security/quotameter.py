"""Meters for quotas: how long a client must pause after it has used too much.

The formulas are Kafka's, so that clients see the same throttle times. Time is passed in, in
milliseconds of a clock that never goes back.
"""

from __future__ import annotations

import math
from typing import Final

SAMPLES: Final = 11
"""The number of samples that a rate is measured over (`quota.window.num`)."""
WINDOW_MS: Final = 1_000
"""The duration of a sample (`quota.window.size.seconds`)."""


class _Sample:
    """The amount that was recorded during one window."""

    __slots__ = ("amount", "last_ms", "start_ms")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.amount = 0.0
        self.start_ms = self.last_ms = now_ms


class RateMeter:
    """Measures a rate over the last samples, as Kafka's `Rate` does.

    The time before the first record counts as idle, so a client can begin with a burst of
    (samples - 1) seconds' worth.
    """

    __slots__ = ("_current", "_max_throttle_ms", "_samples")

    def __init__(self, *, max_throttle_ms: int | None = None) -> None:
        """Begin to measure.

        Args:
            max_throttle_ms: an upper bound for pauses. Kafka has one of a second for request time
                and connections, none for bytes.
        """
        self._max_throttle_ms = max_throttle_ms
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, amount: float, now_ms: int, limit: float) -> int:
        """Record what was used, and return for how many milliseconds the client must pause.

        To take back what was recorded but not used, call `add` with a negative amount.
        """
        self.add(amount, now_ms)
        elapsed_ms = self._elapsed_ms(now_ms)
        rate = self._rate(elapsed_ms)
        if rate <= limit:
            return 0
        # A pause of p brings the rate down to the limit: rate * elapsed / (elapsed + p) = limit.
        throttle_ms = math.floor((rate - limit) / limit * elapsed_ms + 0.5)
        if self._max_throttle_ms is not None:
            return min(throttle_ms, self._max_throttle_ms)
        return throttle_ms

    def add(self, amount: float, now_ms: int) -> None:
        """Record what was used, without a decision."""
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[self._current]
        if now_ms - sample.start_ms >= WINDOW_MS:
            sample = self._advance(now_ms)
        sample.amount += amount
        sample.last_ms = now_ms

    def rate(self, now_ms: int) -> float:
        """Return the rate per second."""
        return self._rate(self._elapsed_ms(now_ms))

    @property
    def last_ms(self) -> int | None:
        """Return when something was recorded last; None if never."""
        return max((sample.last_ms for sample in self._samples), default=None)

    def _advance(self, now_ms: int) -> _Sample:
        # One more than the number of samples: the oldest may overlap the measured time.
        self._current = (self._current + 1) % (SAMPLES + 1)
        if self._current == len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]

    def _elapsed_ms(self, now_ms: int) -> int:
        """Drop old samples, and return the time that the others cover."""
        for sample in self._samples:
            if now_ms - sample.last_ms >= SAMPLES * WINDOW_MS:
                sample.reset(now_ms)
        oldest = min((sample.start_ms for sample in self._samples), default=now_ms)
        elapsed_ms = now_ms - oldest
        missing = SAMPLES - 1 - elapsed_ms // WINDOW_MS
        return max(elapsed_ms + max(missing, 0) * WINDOW_MS, 1)

    def _rate(self, elapsed_ms: int) -> float:
        return sum(sample.amount for sample in self._samples) / (elapsed_ms / 1_000.0)


class TokenBucket:
    """A bucket that fills at the rate of the limit, for controller mutations (KIP-599).

    Its size is what the limit allows during all samples. It may be overdrawn: the last operation
    that finds it not empty can be of any size, and the client pauses until it is refilled.
    """

    __slots__ = ("_last_ms", "_tokens")

    def __init__(self) -> None:
        """Begin with a full bucket."""
        self._tokens = math.inf
        self._last_ms = 0

    @property
    def last_ms(self) -> int:
        """Return when the bucket was used last."""
        return self._last_ms

    def record(self, amount: float, now_ms: int, limit: float) -> int:
        """Take tokens in any case, and return for how many milliseconds the client must pause.

        This is for versions of requests whose clients do not know THROTTLING_QUOTA_EXCEEDED.
        """
        self._refill(now_ms, limit)
        self._tokens -= amount
        return self._throttle_ms(limit)

    def record_strictly(self, amount: float, now_ms: int, limit: float) -> int:
        """Take tokens unless the bucket is overdrawn.

        Returns:
            0 if they were taken. Otherwise nothing was: answer THROTTLING_QUOTA_EXCEEDED, and let
            the client pause for that many milliseconds.
        """
        self._refill(now_ms, limit)
        if self._tokens < 0:
            return self._throttle_ms(limit)
        self._tokens -= amount
        return 0

    def _refill(self, now_ms: int, limit: float) -> None:
        size = SAMPLES * (WINDOW_MS / 1_000.0) * limit
        self._tokens = min(size, self._tokens + limit * ((now_ms - self._last_ms) / 1_000.0))
        self._last_ms = now_ms

    def _throttle_ms(self, limit: float) -> int:
        return 0 if self._tokens >= 0 else math.floor(-self._tokens / limit * 1_000 + 0.5)
