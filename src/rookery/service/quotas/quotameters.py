"""The meters of all clients that a quota limits."""

from __future__ import annotations

from typing import Final, NamedTuple

from rookery.security.quota import QuotaKey, QuotaLimit
from rookery.security.quotameter import SAMPLES, WINDOW_MS, RateMeter, TokenBucket

_MAX_THROTTLE_MS: Final = 1_000
"""The longest pause for request time; one for bytes has no limit, as in Kafka."""
_RATE_IDLE_MS: Final = SAMPLES * WINDOW_MS
"""A rate meter that was idle for this long has nothing left to measure."""
_BUCKET_IDLE_MS: Final = 3_600_000
"""An overdrawn bucket can need long to fill. Kafka removes its meters after the same time."""
_FIRST_SWEEP: Final = 1_000


class _MeterKey(NamedTuple):
    """Clients with the same key share a meter."""

    key: QuotaKey
    user: str | None
    client_id: str | None


class QuotaMeters:
    """Creates meters on first use, and removes idle ones: clients choose their client ids."""

    def __init__(self) -> None:
        self._rates: dict[_MeterKey, RateMeter] = {}
        self._buckets: dict[_MeterKey, TokenBucket] = {}
        self._sweep_size = _FIRST_SWEEP

    def __len__(self) -> int:
        return len(self._rates) + len(self._buckets)

    def rate(self, key: QuotaKey, limit: QuotaLimit, now_ms: int) -> RateMeter:
        """Return the meter of a limit on a rate."""
        name = _MeterKey(key, limit.user, limit.client_id)
        meter = self._rates.get(name)
        if meter is None:
            self._sweep(now_ms)
            is_time = key is QuotaKey.REQUEST_PERCENTAGE
            meter = RateMeter(max_throttle_ms=_MAX_THROTTLE_MS if is_time else None)
            self._rates[name] = meter
        return meter

    def bucket(self, key: QuotaKey, limit: QuotaLimit, now_ms: int) -> TokenBucket:
        """Return the token bucket of a limit."""
        name = _MeterKey(key, limit.user, limit.client_id)
        bucket = self._buckets.get(name)
        if bucket is None:
            self._sweep(now_ms)
            bucket = self._buckets[name] = TokenBucket()
        return bucket

    def address(self, address: str, now_ms: int) -> RateMeter:
        """Return the meter of new connections from an address."""
        key = QuotaKey.CONNECTION_CREATION_RATE
        name = _MeterKey(key, None, address)
        meter = self._rates.get(name)
        if meter is None:
            self._sweep(now_ms)
            meter = self._rates[name] = RateMeter(max_throttle_ms=_MAX_THROTTLE_MS)
        return meter

    def _sweep(self, now_ms: int) -> None:
        """Remove idle meters, each time that the number of meters has doubled."""
        if len(self) < self._sweep_size:
            return
        self._rates = {
            name: meter
            for name, meter in self._rates.items()
            if now_ms - (meter.last_ms or now_ms) < _RATE_IDLE_MS
        }
        self._buckets = {
            name: bucket
            for name, bucket in self._buckets.items()
            if now_ms - bucket.last_ms < _BUCKET_IDLE_MS
        }
        self._sweep_size = max(_FIRST_SWEEP, 2 * len(self))
