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


class PastListeners:
    """The counts of listeners that are closed while the process lives on."""

    def __init__(self) -> None:
        self.accepted = 0
        self.refused = 0

    def add(self, listener: Listener) -> None:
        """Keep the counts of a listener that is closed."""
        self.accepted += listener.accepted
        self.refused += listener.refused


def listener_numbers(
    listeners: Sequence[Listener], past: PastListeners | None = None
) -> list[MetricReading]:
    """Return the metrics and their readers.

    Args:
        listeners: those of the process; more can be added to the sequence later.
        past: those that were removed from the sequence.
    """
    past = past or PastListeners()
    return [
        (_OPEN, lambda: sum(len(listener.connections) for listener in listeners)),
        (_ACCEPTED, lambda: past.accepted + sum(each.accepted for each in listeners)),
        (_REFUSED, lambda: past.refused + sum(each.refused for each in listeners)),
    ]
