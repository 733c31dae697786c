"""Metrics pushed by clients (KIP-714): throttling, and the latest values for `/metrics`.

Clients ask for their subscription, then push once per interval, to any broker. The stored data is
limited: the number of clients, the series per client, and all series. A client that is absent for
three intervals is removed with its series.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from rookery import metrics
from rookery.errors import ApiError, ErrorCode
from rookery.formats.otlp import Point
from rookery.model.uuid import uuid_text

if TYPE_CHECKING:
    from rookery.broker.telemetry.clientmetrics import WantedMetrics

MAX_BYTES: Final = 1024 * 1024
"""The maximum compressed size of one push (Kafka's telemetry.max.bytes)."""
MAX_POINTS: Final = 5000
"""The maximum number of data points read from one push."""
_MAX_CLIENTS: Final = 10_000
_MAX_CLIENT_SERIES: Final = 500
_MAX_SERIES: Final = 10_000
_LABEL_CHARACTERS: Final = 200
_PATIENCE: Final = 3
_LEAST_PATIENCE_MS: Final = 60_000
_EXPIRY_INTERVAL_MS: Final = 10_000
_ASKS_AGAIN: Final = frozenset(
    {ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE}
)

# As many children as series, so that none is counted as "other".
VALUES: Final = metrics.gauges(
    "rookery_client_metric_value",
    "The newest value of gauges and sums that clients push; sums add up while this broker runs.",
    ("client_id", "instance", "metric", "attributes"),
    max_children=_MAX_SERIES,
)
CLIENTS: Final = metrics.gauge(
    "rookery_client_instances_known", "Clients that have asked for telemetry subscriptions."
)
_PUSHED: Final = metrics.counter(
    "rookery_client_pushed_points_total", "Numbers in the metrics that clients have pushed."
)
_DROPPED: Final = metrics.counter(
    "rookery_client_dropped_points_total", "Numbers that were dropped because a limit was reached."
)

Series = tuple[str, str, str, str]


class ClientInstance:
    """One client that pushes metrics or can do so."""

    __slots__ = (
        "client_id", "has_asked", "id", "interval_ms", "is_terminating", "last_error", "last_ms",
        "last_push_ms", "series",
    )  # fmt: skip

    def __init__(self, instance_id: bytes, client_id: str) -> None:
        self.id = instance_id
        self.client_id = client_id
        self.interval_ms = 0
        self.has_asked = False
        """Whether it has asked for its subscription since its last push."""
        self.last_ms = -1
        """The time of its last accepted request."""
        self.last_push_ms = -1
        self.is_terminating = False
        self.last_error = ErrorCode.NONE
        self.series: dict[Series, None] = {}

    def may_ask(self, now_ms: int) -> bool:
        """Record a request for the subscription, unless it is too early."""
        is_early = self.last_ms >= 0 and now_ms - self.last_ms < self.interval_ms
        # A client whose push was refused can ask again immediately.
        if is_early and self.last_error not in _ASKS_AGAIN:
            return False
        self.last_ms = now_ms
        self.has_asked = True
        return True

    def may_push(self, now_ms: int) -> bool:
        """Record a push if it is the first after a subscription request or not too early."""
        is_first = self.last_push_ms < 0 or self.has_asked
        if not is_first and now_ms - self.last_push_ms < self.interval_ms:
            return False
        self.last_ms = self.last_push_ms = now_ms
        self.has_asked = False
        return True


class Telemetry:
    """The clients of one broker that push metrics."""

    def __init__(self) -> None:
        # Ordered by last use, the least recently used first.
        self._clients: OrderedDict[bytes, ClientInstance] = OrderedDict()
        self._series = 0
        self._expired_ms = 0

    def __len__(self) -> int:
        return len(self._clients)

    def ask(
        self, instance_id: bytes, client_id: str, wanted: WantedMetrics, now_ms: int
    ) -> ClientInstance:
        """Record that a client asks for its subscription.

        Raises:
            ApiError: THROTTLING_QUOTA_EXCEEDED: its interval is not over.
        """
        client = self._client(instance_id, client_id, wanted, now_ms)
        if not client.may_ask(now_ms):
            raise _too_early()
        client.last_error = ErrorCode.NONE
        return client

    def admit(
        self,
        instance_id: bytes,
        client_id: str,
        wanted: WantedMetrics,
        now_ms: int,
        *,
        is_last: bool,
    ) -> ClientInstance:
        """Record that a client pushes.

        Raises:
            ApiError: INVALID_REQUEST after its last push, THROTTLING_QUOTA_EXCEEDED.
        """
        client = self._client(instance_id, client_id, wanted, now_ms)
        if client.is_terminating:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"client {uuid_text(instance_id)} has already sent its final push",
            )
        if not client.may_push(now_ms) and not is_last:
            raise _too_early()
        client.is_terminating = is_last
        return client

    def keep(self, client: ClientInstance, points: Iterable[Point]) -> None:
        """Store the latest values of a client."""
        instance = uuid_text(client.id)
        for name, attributes, value, is_delta in points:
            _PUSHED.inc()
            words = ",".join(f"{key}={text}" for key, text in attributes)
            series = (
                client.client_id, instance, name[:_LABEL_CHARACTERS], words[:_LABEL_CHARACTERS]
            )  # fmt: skip
            if series not in client.series:
                if len(client.series) >= _MAX_CLIENT_SERIES or self._series >= _MAX_SERIES:
                    _DROPPED.inc()
                    continue
                client.series[series] = None
                self._series += 1
            gauge = VALUES.labels(*series)
            gauge.set(gauge.value + value if is_delta else value)

    def expire(self, now_ms: int) -> None:
        """Remove clients that were absent for too long."""
        self._expired_ms = now_ms
        for client in list(self._clients.values()):
            patience_ms = max(_PATIENCE * client.interval_ms, _LEAST_PATIENCE_MS)
            if now_ms - client.last_ms > patience_ms:
                self._forget(client)

    def _client(
        self, instance_id: bytes, client_id: str, wanted: WantedMetrics, now_ms: int
    ) -> ClientInstance:
        client = self._clients.get(instance_id)
        if client is None:
            if now_ms - self._expired_ms >= _EXPIRY_INTERVAL_MS:
                self.expire(now_ms)
            if len(self._clients) >= _MAX_CLIENTS:
                self._forget(next(iter(self._clients.values())))
            client = self._clients[instance_id] = ClientInstance(
                instance_id, client_id[:_LABEL_CHARACTERS]
            )
            CLIENTS.inc()
        self._clients.move_to_end(instance_id)
        client.interval_ms = wanted.interval_ms
        return client

    def _forget(self, client: ClientInstance) -> None:
        del self._clients[client.id]
        CLIENTS.dec()
        for series in client.series:
            VALUES.remove(*series)
        self._series -= len(client.series)


def _too_early() -> ApiError:
    return ApiError(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED, "the client's push interval is not over yet"
    )
