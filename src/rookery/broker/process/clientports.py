"""The ports on which a broker serves clients: its own, and the bootstrap port of all workers."""

from __future__ import annotations

import asyncio
from typing import Final

from rookery.broker.call import Services
from rookery.broker.dispatch import Dispatcher
from rookery.broker.settings import BrokerSettings
from rookery.clock import loop_seconds
from rookery.model.address import parse_address
from rookery.net.answers import AnswerBudget
from rookery.net.listener import Listener, ListenerSettings
from rookery.net.outbox import Budget

# A broker that has left the cluster answers until no request has arrived for _QUIET_SECONDS, but no
# longer than _REDIRECT_SECONDS.
_REDIRECT_SECONDS: Final = 1.0
_QUIET_SECONDS: Final = 0.15


class ClientPorts:
    """The listeners of a broker, which share one limit for requests and one for responses."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.listeners: list[Listener] = []
        """The started listeners; the broker's own port is the first."""
        self._settings = settings

    @property
    def own(self) -> Listener:
        """The listener on the broker's own port, which is advertised to clients."""
        return self.listeners[0]

    async def start(self, services: Services) -> None:
        """Listen on all ports.

        Raises:
            ConfigError: an address cannot be listened on.
        """
        settings = self._settings
        dispatcher, budget = Dispatcher(services), Budget(settings.request_bytes)
        answers = AnswerBudget(settings.answer_bytes, settings.unread_timeout_ms)
        # The broker's own port comes first: it is the advertised one.
        for name, text in (("listen", settings.listen), ("bootstrap", settings.bootstrap)):
            if not text:
                continue
            address = parse_address(text, name, lowest_port=0)
            options = ListenerSettings(
                host=address.host,
                port=address.port,
                reuse_port=name == "bootstrap",
                max_connections=settings.max_connections,
            )
            listener = Listener(dispatcher, options, budget=budget, answers=answers)
            await listener.start()
            self.listeners.append(listener)

    async def redirect_clients(self, services: Services) -> None:
        """Continue for a moment to report the new leaders of partitions to clients.

        A client that finds the port closed instead waits up to ten seconds before it retries.
        """
        end = loop_seconds() + _REDIRECT_SECONDS
        seen = -1
        while loop_seconds() < end and seen != services.requests:
            has_clients = any(listener.connections for listener in self.listeners)
            if not has_clients or not services.replica.state.brokers.by_node:
                return
            seen = services.requests
            await asyncio.sleep(_QUIET_SECONDS)

    async def stop(self, grace_ms: int) -> None:
        """Stop listening, and close all connections when their requests are answered."""
        await asyncio.gather(*(listener.stop(grace_ms) for listener in self.listeners))

    def abort_connections(self) -> None:
        """Close all connections immediately; clients connect again."""
        for listener in self.listeners:
            for connection in list(listener.connections):
                connection.abort()
