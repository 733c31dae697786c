"""The port of code that relays requests past the queues of both connections."""

from __future__ import annotations

from typing import Protocol


class DirectPath(Protocol):
    """Requests that are in no queue; `spill` puts them there before anything unusual happens."""

    @property
    def in_flight(self) -> int:
        """The number of such requests without a response."""

    @property
    def last_seen(self) -> float:
        """When the client last made progress, by the clock of the loop."""

    @property
    def has_part(self) -> bool:
        """Whether the first bytes of a request have arrived."""

    def spill(self) -> None:
        """Put all such requests into the queues."""
