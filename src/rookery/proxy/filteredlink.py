"""The requests of one client that filters see.

The order of a client's requests stays: while a filter waits, the client's later requests wait, too.
Responses return in order whatever their filters do.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rookery.client.connect.versions import Versions, negotiate
from rookery.clock import Clock
from rookery.errors import ErrorCode, ProtocolError
from rookery.net.connection import Connection
from rookery.net.outbox import Answer
from rookery.net.upstream import Upstream
from rookery.proxy.clientgate import ClientGate, GateReason
from rookery.proxy.filterapi import Disconnect, Filter, FilterContext, Forward, Respond
from rookery.proxy.filterchain import FilterFailure, Outcome, run_filters
from rookery.proxy.passage import Passage
from rookery.wire.buffer import Buffer
from rookery.wire.codec import read_request, read_response, request_frame, response_frame
from rookery.wire.frame import PREFIX_BYTES, Frame
from rookery.wire.message import Api, Message, Request, Response

_CLIENT_ID: Final = "rookery-proxy"
_DROPPED: Final = FilterFailure(ErrorCode.POLICY_VIOLATION)


class FilterTarget(Protocol):
    """What filtered requests need of the virtual cluster."""

    name: str
    clock: Clock
    filter_timeout_ms: int
    own_timeout_ms: int
    """For requests that filters send themselves."""


class Forwarder(Protocol):
    """Sends a request to the broker; returns its response as the client would get it."""

    def __call__(
        self, passage: Passage, correlation_id: int, parts: list[Buffer], *, is_one_way: bool
    ) -> Answer | Awaitable[Answer]:
        """Send the request, given as parts without a length."""


@dataclass(frozen=True, slots=True)
class FilteredRequest:
    """A request on its way through filters."""

    passage: Passage
    correlation_id: int
    frame: Frame
    request: Any
    context: FilterContext

    @property
    def is_one_way(self) -> bool:
        """Whether the client expects no response."""
        return self.passage.can_be_one_way and self.passage.api.is_one_way(self.request)

    def encode(self, message: Message | None) -> list[Buffer]:
        """Return the request to forward, without its length: as it came, or changed."""
        if message is None:
            return [self.frame]
        parts = request_frame(
            self.passage.api, self.passage.version, 0, self.context.client_id, message
        )
        return [memoryview(parts[0])[PREFIX_BYTES:], *parts[1:]]

    def respond(self, response: Message) -> Answer:
        """Return a response of the proxy's own."""
        if self.is_one_way:
            return None
        passage = self.passage
        return response_frame(passage.api, passage.version, self.correlation_id, response)

    def refuse(self, code: ErrorCode) -> Answer:
        """Return the refusal of the request.

        Raises:
            ProtocolError: the client expects no response, so that only its connection can tell.
        """
        if self.is_one_way:
            raise ProtocolError(f"a filter refused a request without a response: {code.name}")
        return self.respond(self.passage.api.refuse(self.request, code))


class FilteredLink:
    """Passes the requests of one client through filters."""

    __slots__ = ("_gate", "_memory", "_node_id", "_session", "_target")

    def __init__(
        self,
        connection: Connection,
        target: FilterTarget,
        node_id: int | None,
        gate: ClientGate,
    ) -> None:
        """Prepare for one client.

        Args:
            connection: of the client.
            target: the virtual cluster.
            node_id: the broker whose port the client has connected to; None for the bootstrap port.
            gate: holds the client's later requests while a filter waits.
        """
        self._session = connection.session
        self._target = target
        self._node_id = node_id
        self._gate = gate
        self._memory: dict[Filter, Any] = {}

    def start(
        self,
        forward: Forwarder,
        upstream: Upstream,
        passage: Passage,
        correlation_id: int,
        frame: Frame,
    ) -> Answer | Awaitable[Answer]:
        """Pass one request through its filters and on; return its response, or an awaitable.

        Raises:
            ProtocolError: the request cannot be decoded.
            Unavailable: the connection to the broker is closed.
        """
        target = self._target
        header, body = read_request(passage.api, frame)
        context = FilterContext(
            cluster=target.name,
            node_id=self._node_id,
            session=self._session,
            api=passage.api,
            version=passage.version,
            client_id=header.client_id,
            clock=target.clock,
            upstream=OwnRequests(upstream, target.own_timeout_ms),
            memory=self._memory,
        )
        request = FilteredRequest(passage, correlation_id, frame, body, context)
        outcome = run_filters(passage.request_filters, context, body, target.filter_timeout_ms)
        if not inspect.isawaitable(outcome):
            return self._follow(forward, request, outcome)
        self._gate.close(GateReason.FILTER)
        return self._wait(forward, request, outcome)

    async def _wait(
        self, forward: Forwarder, request: FilteredRequest, outcome: Awaitable[Outcome]
    ) -> Answer:
        try:
            answer = self._follow(forward, request, await outcome)
        finally:
            self._gate.open(GateReason.FILTER)
        return await answer if inspect.isawaitable(answer) else answer

    def _follow(
        self, forward: Forwarder, request: FilteredRequest, outcome: Outcome
    ) -> Answer | Awaitable[Answer]:
        """Do what the request's filters have decided."""
        if not isinstance(outcome, Forward):
            return self._end(request, outcome)
        passage = request.passage
        answer = forward(
            passage,
            request.correlation_id,
            request.encode(outcome.message),
            is_one_way=request.is_one_way,
        )
        if passage.response_filters and inspect.isawaitable(answer):
            return self._filter_response(request, answer)
        return answer

    async def _filter_response(
        self, request: FilteredRequest, awaited: Awaitable[Answer]
    ) -> Answer:
        """Pass a response through its filters; return what the client gets."""
        answer = await awaited
        if answer is None:
            return None
        passage = request.passage
        response = read_response(passage.api, passage.version, _joined(answer))
        outcome = run_filters(
            passage.response_filters, request.context, response, self._target.filter_timeout_ms
        )
        if inspect.isawaitable(outcome):
            outcome = await outcome
        if not isinstance(outcome, Forward):
            return self._end(request, outcome)
        return answer if outcome.message is None else request.respond(outcome.message)

    def _end(self, request: FilteredRequest, outcome: Outcome) -> Answer:
        """Answer a request here, after a verdict other than to forward."""
        if isinstance(outcome, Respond):
            return request.respond(outcome.response)
        if isinstance(outcome, Disconnect):
            raise ProtocolError(outcome.reason)
        if isinstance(outcome, FilterFailure):
            return request.refuse(outcome.code)
        # Drop: only a request that expects no response can disappear.
        return None if request.is_one_way else request.refuse(_DROPPED.code)


class OwnRequests:
    """Sends requests of a filter's own over the connection of its client."""

    __slots__ = ("_timeout_ms", "_upstream")

    def __init__(self, upstream: Upstream, timeout_ms: int) -> None:
        self._upstream = upstream
        self._timeout_ms = timeout_ms

    async def send(self, api: Api[Request, Response], request: Request) -> Response:
        """Send a request in the newest version that both sides know; return its response.

        Raises:
            Unavailable: the broker does not answer.
            ApiError: it does not know the API.
        """
        versions = await self._negotiate()
        return await self._upstream.call(api, versions.choose(api), request, self._timeout_ms)

    async def _negotiate(self) -> Versions:
        return await negotiate(self._upstream, _CLIENT_ID, {}, self._timeout_ms)


def _joined(answer: list[Buffer] | tuple[Buffer, ...]) -> Buffer:
    """Return a response without its length, as one buffer."""
    return memoryview(b"".join(answer))[PREFIX_BYTES:]
