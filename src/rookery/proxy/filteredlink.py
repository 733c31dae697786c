"""The requests of one client that filters see.

The order of a client's requests stays: while a filter waits, the client's later requests wait, too.
Responses return in order whatever their filters do.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from rookery.client.connect.versions import negotiate
from rookery.clock import Clock
from rookery.errors import ErrorCode, ProtocolError
from rookery.net.connection import Connection
from rookery.net.outbox import Answer
from rookery.net.upstream import Upstream
from rookery.proxy.clientgate import ClientGate, GateReason
from rookery.proxy.filterapi import (
    Disconnect,
    Filter,
    FilterContext,
    Forward,
    Respond,
    Verdict,
)
from rookery.proxy.filterchain import FilterFailure, FilterOutcome, FilterStep, run_filters
from rookery.proxy.passage import Passage
from rookery.wire.buffer import Buffer
from rookery.wire.codec import read_request, read_response, request_frame, response_frame
from rookery.wire.frame import PREFIX_BYTES, Frame
from rookery.wire.message import Api, Message, Request, Response

_CLIENT_ID: Final = "rookery-proxy"


class FilterTarget(Protocol):
    """What filtered requests need of the virtual cluster."""

    name: str
    clock: Clock
    filter_timeout_ms: int
    own_timeout_ms: int
    """For requests that filters send themselves."""

    async def rewrite(self, response: Message) -> None:
        """Replace the addresses in a response, after ports were opened for new brokers."""


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
        """Return a response as bytes."""
        passage = self.passage
        return response_frame(passage.api, passage.version, self.correlation_id, response)

    def refuse(self, code: ErrorCode) -> Message:
        """Return the refusal of the request.

        Raises:
            ProtocolError: the client expects no response, so that only its connection can tell.
        """
        if self.is_one_way:
            raise ProtocolError(f"a filter refused a request without a response: {code.name}")
        refusal: Message = self.passage.api.refuse(self.request, code)
        return refusal


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
            upstream=OwnRequests(upstream, target),
            memory=self._memory,
        )
        request = FilteredRequest(passage, correlation_id, frame, body, context)
        outcome = run_filters(passage.request_filters, context, body, target.filter_timeout_ms)
        if not inspect.isawaitable(outcome):
            return self._follow(forward, request, outcome)
        self._gate.close(GateReason.FILTER)
        return self._wait(forward, request, outcome)

    async def _wait(
        self, forward: Forwarder, request: FilteredRequest, outcome: Awaitable[FilterOutcome]
    ) -> Answer:
        try:
            answer = self._follow(forward, request, await outcome)
        finally:
            self._gate.open(GateReason.FILTER)
        return await answer if inspect.isawaitable(answer) else answer

    def _follow(
        self, forward: Forwarder, request: FilteredRequest, outcome: FilterOutcome
    ) -> Answer | Awaitable[Answer]:
        """Do what the request's filters have decided."""
        if not isinstance(outcome.verdict, Forward):
            return self._end(request, outcome)
        passage = request.passage
        answer = forward(
            passage,
            request.correlation_id,
            request.encode(outcome.verdict.message),
            is_one_way=request.is_one_way,
        )
        if passage.response_filters and inspect.isawaitable(answer):
            return self._filter_answer(request, answer)
        return answer

    async def _filter_answer(self, request: FilteredRequest, awaited: Awaitable[Answer]) -> Answer:
        """Pass a broker's response through its filters; return what the client gets."""
        answer = await awaited
        if answer is None:
            return None
        passage = request.passage
        response = read_response(passage.api, passage.version, _joined(answer))
        return await self._filter_response(request, passage.response_filters, response, answer)

    async def _filter_response(
        self,
        request: FilteredRequest,
        steps: Sequence[FilterStep],
        response: Message,
        unchanged: Answer,
    ) -> Answer:
        """Pass a response through some of its filters.

        Args:
            request: that it belongs to.
            steps: the functions that see it.
            response: to pass.
            unchanged: the same as bytes, which are sent if no filter changes it.
        """
        timeout_ms = self._target.filter_timeout_ms
        outcome = run_filters(steps, request.context, response, timeout_ms)
        if inspect.isawaitable(outcome):
            outcome = await outcome
        if not isinstance(outcome.verdict, Forward):
            answer = self._end(request, outcome)
            return await answer if inspect.isawaitable(answer) else answer
        message = outcome.verdict.message
        return unchanged if message is None else request.respond(message)

    def _end(self, request: FilteredRequest, outcome: FilterOutcome) -> Answer | Awaitable[Answer]:
        """Answer a request here, after a verdict other than to forward.

        The filters before the one that decided see the response as they would see a broker's.

        Raises:
            ProtocolError: the connection is to be closed.
        """
        response = _response(request, outcome.verdict)
        if response is None:
            return None
        answer = request.respond(response)
        earlier = [
            step for step in request.passage.response_filters if step.position < outcome.position
        ]
        if not earlier:
            return answer
        return self._filter_response(request, earlier, response, answer)


def _response(request: FilteredRequest, verdict: Verdict | FilterFailure) -> Message | None:
    """Return the response that a verdict means; None if there is none.

    Raises:
        ProtocolError: the connection is to be closed.
    """
    if isinstance(verdict, Disconnect):
        raise ProtocolError(verdict.reason)
    if isinstance(verdict, Respond):
        return None if request.is_one_way else verdict.response
    if isinstance(verdict, FilterFailure):
        return request.refuse(verdict.code)
    # Drop: only a request that expects no response can disappear.
    return None if request.is_one_way else request.refuse(ErrorCode.POLICY_VIOLATION)


class OwnRequests:
    """Sends requests of a filter's own over the connection of its client."""

    __slots__ = ("_target", "_upstream")

    def __init__(self, upstream: Upstream, target: FilterTarget) -> None:
        self._upstream = upstream
        self._target = target

    async def send(
        self, api: Api[Request, Response], request: Request, version: int | None = None
    ) -> Response:
        """Send a request; return its response, with the proxy's addresses.

        Args:
            api: of the request.
            request: to send.
            version: to send it in; by default the newest that both sides know.

        Raises:
            Unavailable: the broker does not answer.
            ApiError: it does not know the API.
        """
        timeout_ms = self._target.own_timeout_ms
        if version is None:
            versions = await negotiate(self._upstream, _CLIENT_ID, {}, timeout_ms)
            version = versions.choose(api)
        response = await self._upstream.call(api, version, request, timeout_ms)
        await self._target.rewrite(response)
        return response


def _joined(answer: list[Buffer] | tuple[Buffer, ...]) -> Buffer:
    """Return a response without its length, as one buffer."""
    return memoryview(b"".join(answer))[PREFIX_BYTES:]
