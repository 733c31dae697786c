"""One client of the proxy, and its connection to a broker of the upstream.

A request is forwarded as it arrived, with a correlation id of the proxy's own. The response gets
the client's id back. The order is the broker's: responses return in the order of their requests.

Back-pressure joins both ends (`net.upstream.relay`): a client that does not read pauses its own
broker connection and no other, and a broker that does not read pauses the clients that need it.

If the connection to the broker breaks, or a response does not arrive in time, the client's
connection is closed after the responses that have arrived. For the client this is what happens when
a broker fails, so it connects again and retries.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from struct import Struct
from typing import Any, Final, Protocol

from rookery.errors import ProtocolError, Unavailable
from rookery.net.callqueue import CallOptions
from rookery.net.connection import Connection
from rookery.net.outbox import Answer
from rookery.net.upstream import Upstream, relay
from rookery.proxy.addresses import replace_hints
from rookery.proxy.apiversions import change_versions, refuse_versions
from rookery.proxy.linkstate import BackendEvent, LinkEvent, LinkState
from rookery.proxy.passage import Passage, PassageTable
from rookery.wire.buffer import Buffer
from rookery.wire.codec import (
    API_VERSIONS_KEY,
    is_one_way,
    peek,
    read_response,
    response_frame,
)
from rookery.wire.frame import RESPONSE_MINIMUM, Frame
from rookery.wire.message import Message
from rookery.wire.messages.sasl_authenticate import SASL_AUTHENTICATE
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE

_LOGIN_KEYS: Final = frozenset({SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key})
_HEAD: Final = Struct(">ii")
_UNCHANGED: Final = lambda frame: frame  # noqa: E731 (shared by all requests)


class LinkTarget(Protocol):
    """What a link needs of the virtual cluster: a broker to talk to, and how its answers change."""

    passages: PassageTable
    request_options: CallOptions
    """For requests that the broker answers at once, or after the time that they name."""
    slow_options: CallOptions
    """For requests that wait for other clients."""
    one_way_options: CallOptions
    """For requests without a response."""

    async def open_upstream(self, node_id: int | None) -> Upstream:
        """Connect to a broker; to any of the bootstrap servers if there is no node id.

        Raises:
            Unavailable: it cannot be reached.
        """

    async def rewrite(self, response: Message) -> None:
        """Replace the addresses in a response, after ports were opened for new brokers."""

    def advertised(self, node_id: int) -> Any:
        """Return the proxy's address of a broker; None if it has none."""


class ClientLink:
    """A client's connection and the broker's connection that belongs to it."""

    __slots__ = ("_connection", "_node_id", "_target", "_upstream", "state")

    def __init__(self, connection: Connection, target: LinkTarget, node_id: int | None) -> None:
        """Prepare a link; the first request connects to the broker.

        Args:
            connection: of the client.
            target: the virtual cluster.
            node_id: the broker whose port the client has connected to; None for the bootstrap port.
        """
        self.state = LinkState()
        self._connection = connection
        self._target = target
        self._node_id = node_id
        self._upstream: Upstream | None = None
        connection.when_lost(self._lose_client)

    def start(self, frame: Frame) -> Answer | Awaitable[Answer]:
        """Pass one request on; return its response, or an awaitable.

        Raises:
            ProtocolError: the request is not let through.
            Unavailable: the connection to the broker is closed.
        """
        key, version, correlation_id = peek(frame)
        passage = self._target.passages.find((key, version))
        if passage is None:
            if key == API_VERSIONS_KEY:
                return refuse_versions(correlation_id)
            raise ProtocolError(f"API {key} in version {version} does not pass through the proxy")
        self.state.on(_event(key))
        if self._upstream is None:
            # Later requests wait until this one was sent, so that the order stays.
            self._connection.pause()
            return self._connect_and_send(passage, correlation_id, frame)
        return self._send(self._upstream, passage, correlation_id, frame)

    async def _connect_and_send(
        self, passage: Passage, correlation_id: int, frame: Frame
    ) -> Answer:
        self.state.on_backend(BackendEvent.CONNECT)
        try:
            upstream = await self._target.open_upstream(self._node_id)
        except BaseException:
            self.state.on_backend(BackendEvent.FAIL)
            raise
        self.state.on_backend(BackendEvent.READY)
        if self._connection.is_closing:
            upstream.close()
            raise Unavailable("the client is gone")
        self._upstream = upstream
        relay(self._connection, upstream)
        answer = self._send(upstream, passage, correlation_id, frame)
        self._connection.resume()
        return answer if answer is None or isinstance(answer, list | tuple) else await answer

    def _send(
        self, upstream: Upstream, passage: Passage, correlation_id: int, frame: Frame
    ) -> Answer | Awaitable[Answer]:
        target = self._target
        if passage.can_be_one_way and is_one_way(passage.api, frame):
            return upstream.submit([frame], _nothing, target.one_way_options)
        options = target.slow_options if passage.is_slow else target.request_options
        if passage.is_api_versions:
            read = partial(
                change_versions,
                version=passage.version,
                correlation_id=correlation_id,
                passages=target.passages,
            )
            return upstream.submit([frame], read, options)
        if passage.has_hints:
            return upstream.submit(
                [frame], partial(self._change_hints, passage, correlation_id), options
            )
        if passage.has_addresses:
            future = upstream.submit([frame], _UNCHANGED, options)
            return self._change_addresses(future, passage, correlation_id)
        return upstream.submit([frame], partial(_renumber, correlation_id), options)

    def _change_hints(self, passage: Passage, correlation_id: int, frame: Frame) -> list[Buffer]:
        """Return a response with the proxy's addresses; most have none and pass unchanged."""
        response = read_response(passage.api, passage.version, frame)
        if replace_hints(response, self._target.advertised):
            return response_frame(passage.api, passage.version, correlation_id, response)
        return _renumber(correlation_id, frame)

    async def _change_addresses(
        self, future: Awaitable[Frame], passage: Passage, correlation_id: int
    ) -> list[Buffer]:
        response = read_response(passage.api, passage.version, await future)
        await self._target.rewrite(response)
        return response_frame(passage.api, passage.version, correlation_id, response)

    def _lose_client(self) -> None:
        self.state.on(LinkEvent.LOST)
        self.state.on_backend(BackendEvent.CLOSE)


def _event(key: int) -> LinkEvent:
    if key == API_VERSIONS_KEY:
        return LinkEvent.VERSIONS_REQUEST
    return LinkEvent.LOGIN_REQUEST if key in _LOGIN_KEYS else LinkEvent.REQUEST


def _renumber(correlation_id: int, frame: Frame) -> list[Buffer]:
    """Return a response, length first, with the client's correlation id; its body is not copied."""
    return [_HEAD.pack(len(frame), correlation_id), frame[RESPONSE_MINIMUM:]]


def _nothing(_: Frame) -> None:
    """Return no response, for a request without one."""
