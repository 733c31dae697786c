"""One client of the proxy, and its connection to a broker of the upstream.

A request is forwarded as it arrived, with a correlation id of the proxy's own. The response gets
the client's id back. The order is the broker's: responses return in the order of their requests.

Back-pressure joins both ends: a client that does not read pauses its own broker connection and no
other, and a broker that does not read pauses the clients that need it.

If the connection to the broker breaks, or a response does not arrive in time, the client's
connection is closed after the responses that have arrived. For the client this is what happens when
a broker fails, so it connects again and retries.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from functools import partial
from struct import Struct
from typing import Final, Protocol

from rookery.errors import ProtocolError, Unavailable
from rookery.model.address import Address
from rookery.net.callqueue import CallOptions
from rookery.net.connection import Connection
from rookery.net.outbox import Answer
from rookery.net.upstream import Upstream
from rookery.proxy.addresses import replace_hints
from rookery.proxy.apiversions import change_versions, refuse_versions
from rookery.proxy.clientgate import ClientGate, GateReason
from rookery.proxy.filteredlink import FilteredLink, FilterTarget
from rookery.proxy.linkstate import BackendEvent, LinkEvent, LinkState
from rookery.proxy.passage import Passage, PassageTable
from rookery.wire.buffer import Buffer
from rookery.wire.codec import API_VERSIONS_KEY, is_one_way, peek, read_response, response_frame
from rookery.wire.frame import RESPONSE_MINIMUM, Frame
from rookery.wire.messages.sasl_authenticate import SASL_AUTHENTICATE
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE

_LOGIN_KEYS: Final = frozenset({SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key})
_HEAD: Final = Struct(">ii")


class LinkTarget(FilterTarget, Protocol):
    """What a link needs of the virtual cluster: a broker, and how its responses change."""

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

    def advertised(self, node_id: int) -> Address | None:
        """Return the proxy's address of a broker; None if it has none."""


class ClientLink:
    """A client's connection and the broker's connection that belongs to it."""

    __slots__ = ("_connection", "_filters", "_gate", "_node_id", "_target", "_upstream", "state")

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
        self._gate = ClientGate(connection)
        self._filters = FilteredLink(connection, target, node_id, self._gate)
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
        upstream = self._upstream
        if upstream is not None:
            return self._send(upstream, passage, correlation_id, frame)
        # Later requests wait until this one was sent, so that the order stays.
        self._gate.close(GateReason.CONNECTING)
        return self._connect_and_send(passage, correlation_id, frame)

    async def _connect_and_send(
        self, passage: Passage, correlation_id: int, frame: Frame
    ) -> Answer:
        upstream = await self._connect()
        answer = self._send(upstream, passage, correlation_id, frame)
        self._gate.open(GateReason.CONNECTING)
        return await answer if inspect.isawaitable(answer) else answer

    async def _connect(self) -> Upstream:
        connection = self._connection
        self.state.on_backend(BackendEvent.CONNECT)
        try:
            upstream = await self._target.open_upstream(self._node_id)
        except BaseException:
            self.state.on_backend(BackendEvent.FAIL)
            raise
        self.state.on_backend(BackendEvent.READY)
        if connection.is_closing:
            upstream.close()
            raise Unavailable("the client is gone")
        self._upstream = upstream
        connection.when_stuck(lambda is_stuck: upstream.pause() if is_stuck else upstream.resume())
        upstream.when_full(lambda is_full: self._gate.set(GateReason.FULL, is_closed=is_full))
        connection.when_lost(upstream.close)
        upstream.when_lost(self._lose_broker)
        return upstream

    def _send(
        self, upstream: Upstream, passage: Passage, correlation_id: int, frame: Frame
    ) -> Answer | Awaitable[Answer]:
        if passage.is_filtered:
            forward = partial(self._forward, upstream)
            return self._filters.start(forward, upstream, passage, correlation_id, frame)
        is_silent = passage.can_be_one_way and is_one_way(passage.api, frame)
        return self._forward(upstream, passage, correlation_id, [frame], is_one_way=is_silent)

    def _forward(
        self,
        upstream: Upstream,
        passage: Passage,
        correlation_id: int,
        parts: list[Buffer],
        *,
        is_one_way: bool,
    ) -> Answer | Awaitable[Answer]:
        """Send a request to the broker; return its response as the client gets it."""
        target = self._target
        if is_one_way:
            return upstream.submit(parts, _nothing, target.one_way_options)
        options = target.slow_options if passage.is_slow else target.request_options
        if passage.is_api_versions:
            read = partial(change_versions, target.passages, passage.version, correlation_id)
            return upstream.submit(parts, read, options)
        if passage.has_hints:
            hint = partial(self._change_hints, passage, correlation_id)
            return upstream.submit(parts, hint, options)
        if passage.has_addresses:
            future = upstream.submit(parts, _unchanged, options)
            return self._change_addresses(future, passage, correlation_id)
        return upstream.submit(parts, partial(_renumber, correlation_id), options)

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

    def _lose_broker(self) -> None:
        self.state.on(LinkEvent.DRAIN)
        self.state.on_backend(BackendEvent.FAIL)
        self._connection.close()


def _event(key: int) -> LinkEvent:
    if key == API_VERSIONS_KEY:
        return LinkEvent.VERSIONS_REQUEST
    return LinkEvent.LOGIN_REQUEST if key in _LOGIN_KEYS else LinkEvent.REQUEST


def _renumber(correlation_id: int, frame: Frame) -> list[Buffer]:
    """Return a response, length first, with the client's correlation id; its body is not copied."""
    return [_HEAD.pack(len(frame), correlation_id), frame[RESPONSE_MINIMUM:]]


def _unchanged(frame: Frame) -> Frame:
    """Return a response as it came."""
    return frame


def _nothing(_: Frame) -> None:
    """Return no response, for a request without one."""
