"""The resources that all virtual clusters of a process share: memory limits and listeners."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from rookery.model.address import Address
from rookery.net.answers import AnswerBudget
from rookery.net.listener import Listener
from rookery.net.outbox import Budget
from rookery.proxy.settings import ProxySettings
from rookery.service.listen.listenermetrics import PastListeners
from rookery.wire.frame import Chunks


class HeldPorts:
    """Listening sockets that a reload hands from a virtual cluster to the one that replaces it.

    While they are held, the system accepts clients into the backlog, so that no client is refused
    during the reload.
    """

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


@dataclass(frozen=True, slots=True)
class ProcessShare:
    """The limits of memory for all clients of a process, and its listeners."""

    requests: Budget
    answers: AnswerBudget
    chunks: Chunks
    listeners: list[Listener]
    """The started listeners of all clusters."""
    held: HeldPorts
    past: PastListeners
    """The counts of listeners that a reload has closed."""

    @classmethod
    def of(cls, settings: ProxySettings) -> ProcessShare:
        """Create the limits that the settings give."""
        answers = AnswerBudget(settings.answer_bytes, settings.unread_timeout_ms)
        return cls(
            Budget(settings.request_bytes), answers, Chunks(), [], HeldPorts(), PastListeners()
        )
