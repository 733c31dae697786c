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
    LOOKUP = 8
    """The brokers for the request before them are being looked up."""


class ClientGate:
    """Pauses a client's connection until no reason is left."""

    __slots__ = ("_connection", "_lookups", "_reasons")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._reasons = GateReason.NONE
        self._lookups = 0

    def close(self, reason: GateReason) -> None:
        """Hold further requests."""
        if not self._reasons:
            self._connection.pause()
        self._reasons |= reason

    def open(self, reason: GateReason) -> None:
        """Let requests pass, unless there is another reason."""
        was_closed = bool(self._reasons)
        self._reasons &= ~reason
        if was_closed and not self._reasons:
            self._connection.resume()

    def begin_lookup(self) -> None:
        """Hold further requests; filters' own requests can begin a lookup during another."""
        self._lookups += 1
        self.close(GateReason.LOOKUP)

    def end_lookup(self) -> None:
        """Let requests pass if this was the last lookup, unless there is another reason."""
        self._lookups -= 1
        if not self._lookups:
            self.open(GateReason.LOOKUP)

    def set(self, reason: GateReason, *, is_closed: bool) -> None:
        """Close or open the gate for a reason."""
        if is_closed:
            self.close(reason)
        else:
            self.open(reason)
