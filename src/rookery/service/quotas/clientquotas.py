"""The client quotas of a cluster, as one broker enforces them.

    state.security.quotas ──refresh──► QuotaTable ──find──► limit ──► meter ──► pause

Each broker measures its own clients, as in Kafka: a client of several brokers has the limit on each
of them. `is_active` is all that a request costs while the cluster has no quotas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rookery import metrics
from rookery.clock import Clock
from rookery.cluster.state.security import Security
from rookery.security.acl import format_host
from rookery.security.quota import QuotaKey, QuotaLimit, QuotaTable, read_entity
from rookery.security.quotameter import SAMPLES, WINDOW_MS
from rookery.service.quotas.quotameters import QuotaMeters

THROTTLED: Final = metrics.REGISTRY.counters(
    "rookery_throttled_total",
    "Requests and connections after which a client had to pause, by quota.",
    ("quota",),
)


class ClientQuotas:
    """Finds the limits of clients, and measures what they use."""

    def __init__(self, clock: Clock) -> None:
        self.is_active = False
        """Whether the cluster has any quota."""
        self._clock = clock
        self._meters = QuotaMeters()
        self._table = QuotaTable()
        self._security: Security | None = None
        self._version = -1

    def refresh(self, security: Security) -> None:
        """Use the quotas of the state, if they have changed; meters keep their measurements."""
        if security is self._security and security.quotas_version == self._version:
            return
        self._security, self._version = security, security.quotas_version
        self._table = quota_table(security.quotas)
        self.is_active = bool(security.quotas)

    def find(self, key: QuotaKey, user: str, client_id: str) -> QuotaLimit | None:
        """Return the limit of a client; None if it has none."""
        return self._table.find(key, user, client_id)

    def record(self, key: QuotaKey, user: str, client_id: str, amount: float) -> int:
        """Record what a client has used, and return for how many milliseconds it must pause."""
        limit = self._table.find(key, user, client_id)
        if limit is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        pause_ms = self._meters.rate(key, limit, now_ms).record(amount, now_ms, limit.value)
        return _count_pause(key, pause_ms)

    def record_mutations(
        self, user: str, client_id: str, partitions: int, *, is_strict: bool
    ) -> tuple[int, bool]:
        """Record partitions that are created or deleted.

        Returns:
            For how many milliseconds the client must pause, and whether the change is allowed.
        """
        key = QuotaKey.CONTROLLER_MUTATION_RATE
        limit = self._table.find(key, user, client_id)
        if limit is None:
            return 0, True
        now_ms = self._clock.monotonic_ms()
        bucket = self._meters.bucket(key, limit, now_ms)
        if not is_strict:
            return _count_pause(key, bucket.record(partitions, now_ms, limit.value)), True
        pause_ms = bucket.record_strictly(partitions, now_ms, limit.value)
        return _count_pause(key, pause_ms), not pause_ms

    def record_connection(self, host: str) -> int:
        """Record a connection; return after how many milliseconds to close it, 0 to accept it.

        As in Kafka, a connection that is not accepted does not count.
        """
        try:
            address = format_host(host)
        except ValueError:  # not an address: a socket of another family
            return 0
        limit = self._table.find_ip(address)
        if limit is None:
            return 0
        key, now_ms = QuotaKey.CONNECTION_CREATION_RATE, self._clock.monotonic_ms()
        meter = self._meters.address(address, now_ms)
        pause_ms = meter.record(1, now_ms, limit)
        if pause_ms:
            meter.add(-1, now_ms)
        return _count_pause(key, pause_ms)

    def largest_fetch(self, user: str, client_id: str) -> int | None:
        """Return the bytes that a client may fetch within all samples; None without a limit.

        A larger response would exceed the limit even for a client that was idle before.
        """
        limit = self._table.find(QuotaKey.CONSUMER_BYTE_RATE, user, client_id)
        return None if limit is None else int(limit.value * (SAMPLES - 1) * WINDOW_MS / 1_000)


def quota_table(
    quotas: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float]],
) -> QuotaTable:
    """Index the quotas of a state."""
    return QuotaTable({read_entity(parts): limits for parts, limits in quotas.items()})


def user_of(principal: str | None) -> str:
    """Return the name of a principal, without its type."""
    return (principal or "").partition(":")[2]


def _count_pause(key: QuotaKey, pause_ms: int) -> int:
    if pause_ms:
        THROTTLED.labels(key).inc()
    return pause_ms
