"""Holds the requests of one client while any of several reasons lasts."""

from __future__ import annotations

from enum import IntFlag

from rookery.net.connection import Connection


class GateReason(IntFlag):
    """Why a client's requests wait."""

    NONE = 0
    CONNECTING = 1
    """The connection to the broker is being opened."""
    FULL = 2
    """The broker does not read."""
    FILTER = 4
    """A filter has not decided about the request before them."""


class ClientGate:
    """Pauses a client's connection until no reason is left."""

    __slots__ = ("_connection", "_reasons")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._reasons = GateReason.NONE

    def close(self, reason: GateReason) -> None:
        """Hold further requests."""
        self._reasons |= reason
        self._connection.pause()

    def open(self, reason: GateReason) -> None:
        """Let requests pass, unless there is another reason."""
        self._reasons &= ~reason
        if not self._reasons:
            self._connection.resume()

    def set(self, reason: GateReason, *, is_closed: bool) -> None:
        """Close or open the gate for a reason."""
        if is_closed:
            self.close(reason)
        else:
            self.open(reason)
