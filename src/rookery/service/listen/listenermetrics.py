"""Metrics of the clients that are connected to a server's listeners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rookery import metrics
from rookery.metrics import MetricReading
from rookery.net.listener import Listener

_OPEN: Final = metrics.gauge("rookery_net_connections_open", "Clients connected.")
_ACCEPTED: Final = metrics.counter("rookery_net_connections_total", "Clients that have come.")
_REFUSED: Final = metrics.counter(
    "rookery_net_refused_connections_total", "Clients refused because too many were connected."
)


def listener_numbers(listeners: Sequence[Listener]) -> list[MetricReading]:
    """Return the metrics and their readers; listeners can be added to the sequence later."""
    return [
        (_OPEN, lambda: sum(len(listener.connections) for listener in listeners)),
        (_ACCEPTED, lambda: sum(listener.accepted for listener in listeners)),
        (_REFUSED, lambda: sum(listener.refused for listener in listeners)),
    ]
