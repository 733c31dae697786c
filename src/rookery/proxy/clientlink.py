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
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from rookery.errors import ProtocolError, Unavailable
from rookery.model.address import Address
from rookery.net.callqueue import CallOptions
from rookery.net.connection import Connection
from rookery.net.outbox import Answer
from rookery.net.upstream import Upstream
from rookery.proxy.addresses import replace_hints
from rookery.proxy.answerroom import AnswerRoom
from rookery.proxy.apiversions import change_versions, note_software, refuse_versions
from rookery.proxy.clientgate import ClientGate, GateReason
from rookery.proxy.direct.directrelay import DirectRelay
from rookery.proxy.direct.relayrules import RelayRules
from rookery.proxy.edits.surplus import check_surplus
from rookery.proxy.filteredlink import FilteredLink, FilterTarget
from rookery.proxy.linkstate import (
    BackendEvent,
    BackendState,
    LinkEvent,
    LinkStage,
    LinkState,
)
from rookery.proxy.ownrequests import BrokerLine
from rookery.proxy.passage import Passage, PassageTable
from rookery.wire.acks import wants_no_answer
from rookery.wire.buffer import Buffer, join_parts
from rookery.wire.codec import (
    API_VERSIONS_KEY,
    peek,
    read_request,
    read_response,
    response_frame,
)
from rookery.wire.frame import Frame, renumber
from rookery.wire.message import Message


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
        """Connect to a broker; to any of them if there is no node id.

        Raises:
            Unavailable: it cannot be reached.
        """


class LinkEntry(Protocol):
    """The listener that a client has connected to: the addresses that it advertises."""

    relay_rules: RelayRules | None
    """The requests that need no Python code; None if every request needs it."""

    async def rewrite(self, response: Message) -> bool:
        """Replace the addresses in a response, after ports were opened for new brokers.

        Returns:
            Whether the response has changed.
        """

    def find_address(self, node_id: int) -> Address | None:
        """Return the address of a broker; None if it has none."""


class ClientLink:
    """A client's connection and the broker's connection that belongs to it."""

    __slots__ = (
        "_connection", "_entry", "_filters", "_gate", "_is_direct_due", "_line", "_target",
        "_upstream", "backend", "node_id", "state",
    )  # fmt: skip

    def __init__(
        self, connection: Connection, target: LinkTarget, entry: LinkEntry, node_id: int | None
    ) -> None:
        """Prepare a link; the first request connects to the broker.

        Args:
            connection: the connection of the client.
            target: the virtual cluster.
            entry: the listener that the client has connected to.
            node_id: the broker whose port the client has connected to; None for the bootstrap port.
        """
        self.state = LinkState()
        self.backend = BackendState()
        self._connection = connection
        self._target = target
        self._entry = entry
        self.node_id = node_id
        self._upstream: Upstream | None = None
        # For requests of filters' own.
        self._line: BrokerLine | None = None
        self._gate = ClientGate(connection)
        self._filters = FilteredLink(connection, target, node_id, self._gate)
        self._is_direct_due = entry.relay_rules is not None
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
            self.state.arrive()
            if key == API_VERSIONS_KEY:
                return refuse_versions(correlation_id)
            self.state.on(LinkEvent.DRAIN)
            raise ProtocolError(f"API {key} in version {version} does not pass through the proxy")
        if self.state.stage is not LinkStage.ROUTING:
            self.state.note_request(key)
            if key == API_VERSIONS_KEY:
                note_software(self._connection.session, frame)
        upstream = self._upstream
        if upstream is not None:
            if self._is_direct_due and self.state.stage is LinkStage.ROUTING:
                self._relay_directly(upstream)
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
        self.backend.on(BackendEvent.CONNECT)
        try:
            upstream = await self._target.open_upstream(self.node_id)
        except BaseException:
            self.state.on(LinkEvent.DRAIN)
            self.backend.on(BackendEvent.FAIL)
            raise
        self.backend.on(BackendEvent.READY)
        if not connection.is_made:
            upstream.close()
            raise Unavailable("the client is gone")
        self._upstream = upstream
        AnswerRoom(connection, upstream)
        upstream.batch = connection
        upstream.when_full(lambda is_full: self._gate.set(GateReason.FULL, is_closed=is_full))
        connection.when_lost(upstream.close)
        upstream.when_lost(self._lose_broker)
        return upstream

    def _relay_directly(self, upstream: Upstream) -> None:
        """Relay the next requests without Python code, as far as they need none."""
        self._is_direct_due = False
        rules = self._entry.relay_rules
        if rules is not None:
            DirectRelay(self._connection, upstream, rules, self._reader_of).begin()

    def _reader_of(
        self, key: int, version: int, correlation_id: int
    ) -> Callable[[Frame], Answer] | None:
        passage = self._target.passages.find((key, version))
        if passage is None or not passage.has_hints:
            return None
        return partial(self._change_hints, passage, correlation_id)

    def _send(
        self, upstream: Upstream, passage: Passage, correlation_id: int, frame: Frame
    ) -> Answer | Awaitable[Answer]:
        if passage.is_plain:
            target = self._target
            options = target.slow_options if passage.is_slow else target.request_options
            return upstream.relay([frame], correlation_id, options)
        if passage.is_filtered:
            forward = partial(self._forward, upstream)
            if self._line is None:
                self._line = BrokerLine(upstream, self._target, self._entry.rewrite)
            return self._filters.start(forward, self._line, passage, correlation_id, frame)
        is_silent = passage.can_be_one_way and wants_no_answer(passage.api, frame)
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
            call = upstream.relay(parts, correlation_id, target.one_way_options)
            return None if call.is_done else call
        options = target.slow_options if passage.is_slow else target.request_options
        if passage.is_api_versions:
            read = partial(change_versions, target.passages, passage.version, correlation_id)
            return upstream.relay(parts, correlation_id, options, read)
        if passage.has_hints:
            hint = partial(self._change_hints, passage, correlation_id)
            return upstream.relay(parts, correlation_id, options, hint)
        if passage.has_addresses:
            future = upstream.submit(parts, _keep, options)
            return self._change_addresses(passage, correlation_id, join_parts(parts), future)
        return upstream.relay(parts, correlation_id, options)

    def _change_hints(self, passage: Passage, correlation_id: int, frame: Frame) -> list[Buffer]:
        """Return a response with the proxy's addresses; most have none and pass unchanged."""
        response = read_response(passage.api, passage.version, frame)
        if replace_hints(response, self._entry.find_address):
            return response_frame(passage.api, passage.version, correlation_id, response)
        return renumber(frame, correlation_id)

    async def _change_addresses(
        self, passage: Passage, correlation_id: int, request: Buffer, future: Awaitable[Frame]
    ) -> list[Buffer]:
        """Return a response with the proxy's addresses, or as it came if it has none.

        Raises:
            ProtocolError: it cannot be decoded, or has what was not asked for.
        """
        api, version, frame = passage.api, passage.version, await future
        response = read_response(api, version, frame)
        check_surplus(api, version, read_request(api, request)[1], response)
        if await self._entry.rewrite(response):
            return response_frame(api, version, correlation_id, response)
        return renumber(frame, correlation_id)

    def drain(self) -> None:
        """Take no more requests; close both ends when those in flight are answered."""
        self.state.on(LinkEvent.DRAIN)
        self._connection.close()

    def _lose_client(self) -> None:
        self.state.on(LinkEvent.LOST)
        self.backend.on(BackendEvent.CLOSE)

    def _lose_broker(self) -> None:
        self.backend.on(BackendEvent.FAIL)
        self.drain()


def _keep(frame: Frame) -> Frame:
    """Return a response as it came."""
    return frame
