"""Listening sockets that are handed from a virtual cluster to the one that replaces it.

While they are held here, the system accepts clients into the backlog, so that no client is refused
during a reload.
"""

from __future__ import annotations

import socket

from rookery.model.address import Address
from rookery.net.listener import Listener


class HeldPorts:
    """Listening sockets without a listener, by the address that they are bound to."""

    def __init__(self) -> None:
        self._sockets: dict[Address, list[socket.socket]] = {}

    def take_from(self, listener: Listener) -> None:
        """Hold the sockets of a listener; it keeps its connections."""
        address = listener.address
        self._sockets.setdefault(address, []).extend(listener.release())

    def give(self, address: Address) -> list[socket.socket]:
        """Return the sockets of an address; none if it is not held."""
        return self._sockets.pop(address, [])

    def close(self) -> None:
        """Stop listening on the addresses that no listener has taken."""
        for sockets in self._sockets.values():
            for sock in sockets:
                sock.close()
        self._sockets.clear()
