"""Relays the plain requests of one client from socket to socket until something unusual happens.

Compiled code takes the place of `Connection` and `Upstream` as the protocols of both transports.
It keeps requests in a `RelayWindow`, while neither of the two has any in its own queue.

An unusual event first spills the window: its requests get their places in both queues, as if they
had been relayed there. Such events are a request that is decoded, a peer that does not read, a
deadline, and the end of a connection. The queues then decide what happens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rookery import native
from rookery.clock import loop_timer
from rookery.net.callqueue import RelayedCall
from rookery.net.connection import Connection
from rookery.net.outbox import Answer
from rookery.net.upstream import Upstream
from rookery.proxy.direct.relayrules import RelayRules
from rookery.wire.frame import Frame

if TYPE_CHECKING:
    from rookery.proxy.direct import _window as _module
else:
    _module = native.load("rookery.proxy.direct._window", "rookery.proxy.direct.windowtwin")

Reader = Callable[[Frame], Answer]
ReaderOf = Callable[[int, int, int], Reader | None]
"""Returns what converts a response, by key, version and the client's correlation id."""


class DirectRelay:
    """The window of one client, which spills into the queues of its two connections."""

    __slots__ = ("_connection", "_reader_of", "_upstream", "_window")

    def __init__(
        self,
        connection: Connection,
        upstream: Upstream,
        rules: RelayRules,
        reader_of: ReaderOf,
    ) -> None:
        """Relay nothing yet.

        Args:
            connection: the connection of the client.
            upstream: the connection to the broker, for this client alone.
            rules: which requests are relayed.
            reader_of: reads the responses of requests that have been spilled.
        """
        self._connection = connection
        self._upstream = upstream
        self._reader_of = reader_of
        capacity = min(connection.flow.settings.max_in_flight, upstream.settings.max_in_flight)
        self._window = _module.RelayWindow(rules, capacity)

    @property
    def in_flight(self) -> int:
        """The number of relayed requests without a response."""
        return self._window.count

    @property
    def last_seen(self) -> float:
        """When the client last made progress, by the clock of the loop."""
        return self._window.last_seen

    @property
    def has_part(self) -> bool:
        """Whether the first bytes of a request have arrived."""
        return self._window.has_part

    def begin(self) -> None:
        """Take over both transports, unless one of them is encrypted or closing."""
        connection, upstream = self._connection, self._upstream
        flow = connection.flow
        client, broker = flow.transport, upstream.transport
        client_socket, broker_socket = plain_socket(client), plain_socket(broker)
        if client is None or broker is None or client_socket < 0 or broker_socket < 0:
            return
        now = loop_timer()
        requests = _module.RequestEnd(self._window, connection, flow.splitter, flow, upstream, now)
        answers = _module.AnswerEnd(self._window, upstream, upstream.splitter, flow.queue, now)
        requests.aim(broker, broker_socket)
        answers.aim(client, client_socket)
        flow.queue.direct = upstream.calls.direct = self
        client.set_protocol(requests)
        broker.set_protocol(answers)

    def spill(self) -> None:
        """Put all requests of the window into the queues of both connections."""
        if not self._window.count:
            return
        for key, version, number, client_number, deadline, timeout_ms in self._window.drain():
            read = self._reader_of(key, version, client_number)
            call = RelayedCall(number, client_number, read, is_answered=True)
            call.deadline, call.timeout_ms = deadline, timeout_ms
            self._upstream.calls.sent.append(call)
            self._connection.flow.queue.adopt(call)


def plain_socket(transport: asyncio.Transport | None) -> int:
    """Return the descriptor of a socket without TLS; -1 if there is none."""
    if transport is None or transport.is_closing():
        return -1
    if transport.get_extra_info("sslcontext") is not None:
        return -1
    sock: Any = transport.get_extra_info("socket")
    return -1 if sock is None else int(sock.fileno())
