"""The requests of one client that filters see.

The order of a client's requests stays: while a filter waits, the client's later requests wait, too.
Responses return in order whatever their filters do.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from rookery.clock import Clock
from rookery.errors import ErrorCode, ProtocolError
from rookery.net.connection import Connection
from rookery.net.outbox import Answer
from rookery.proxy.clientgate import ClientGate, GateReason
from rookery.proxy.edits.fetchscope import FetchScope, PartitionNames, check_scope
from rookery.proxy.edits.surplus import check_surplus, is_incremental
from rookery.proxy.filterapi import Filter, FilterContext, Forward
from rookery.proxy.filterchain import (
    FilterFailure,
    FilterOutcome,
    FilterStep,
    blame,
    run_filters,
    settle,
)
from rookery.proxy.operation.filterhealth import FilterHealth
from rookery.proxy.ownrequests import OwnLine, OwnRequests, OwnTarget
from rookery.proxy.passage import Passage
from rookery.wire.buffer import Buffer
from rookery.wire.codec import read_request, read_response, request_frame, response_frame
from rookery.wire.frame import PREFIX_BYTES, Frame
from rookery.wire.message import Message
from rookery.wire.messages.fetch import FetchRequest


class FilterTarget(OwnTarget, Protocol):
    """What filtered requests need of the virtual cluster."""

    name: str
    clock: Clock
    filter_health: FilterHealth


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
    is_one_way: bool
    """Whether the client expects no response."""

    def encode(self, message: Message | None) -> list[Buffer]:
        """Return the request to forward, without its length: as it came, or changed."""
        if message is None:
            return [self.frame]
        parts = request_frame(
            self.passage.api, self.passage.version, 0, self.context.client_id, message
        )
        return [memoryview(parts[0])[PREFIX_BYTES:], *parts[1:]]

    def respond(self, response: Message) -> list[Buffer]:
        """Return a response as bytes."""
        passage = self.passage
        return response_frame(passage.api, passage.version, self.correlation_id, response)

    def response_steps(self, before: int | None = None) -> list[FilterStep]:
        """Return the functions that see the response, of filters before a position or of all."""
        return [
            step
            for step in self.passage.response_filters
            if (before is None or step.position < before) and step.applies(self.context)
        ]

    def abandon(self) -> None:
        """Report to the filters with a note of the request that it has no response."""
        context = self.context
        for each in [*context.notes]:
            try:
                each.abandon(context)
            except Exception as error:  # noqa: BLE001 (a user's own code)
                fault = f"failed in {type(each).__name__}.abandon: {error!r}"
                blame(context, None, fault, error)
        context.notes.clear()


class SentRequest(NamedTuple):
    """A request as the filters have changed it."""

    message: Message
    session: PartitionNames | None
    """The partitions of its fetch session; None if it repeats all that it asks for."""

    def check(self, passage: Passage, response: Any) -> None:
        """Refuse a response with something that was not asked for.

        Raises:
            ProtocolError: it has such a thing.
        """
        check_surplus(passage.api, passage.version, self.message, response)
        if self.session is not None:
            check_scope(self.session, response)


class FilteredLink:
    """Passes the requests of one client through filters."""

    __slots__ = ("_connection", "_fetches", "_gate", "_memory", "_node_id", "_target")

    def __init__(
        self,
        connection: Connection,
        target: FilterTarget,
        node_id: int | None,
        gate: ClientGate,
    ) -> None:
        """Prepare for one client.

        Args:
            connection: the connection of the client.
            target: the virtual cluster.
            node_id: the broker whose port the client has connected to; None for the bootstrap port.
            gate: holds the client's later requests while a filter waits.
        """
        self._connection = connection
        self._target = target
        self._node_id = node_id
        self._gate = gate
        self._memory: dict[Filter, Any] = {}
        self._fetches = FetchScope()

    def start(
        self,
        forward: Forwarder,
        line: OwnLine,
        passage: Passage,
        correlation_id: int,
        frame: Frame,
    ) -> Answer | Awaitable[Answer]:
        """Pass one request through its filters and on; return its response, or an awaitable.

        Args:
            forward: sends the request to the upstream.
            line: sends requests of the filters' own.
            passage: the passage of the request.
            correlation_id: the correlation id of the client.
            frame: the request.

        Raises:
            ProtocolError: the request cannot be decoded.
            Unavailable: the connection to the broker is closed.
        """
        target = self._target
        header, body = read_request(passage.api, frame)
        context = FilterContext(
            cluster=target.name,
            node_id=self._node_id,
            session=self._connection.session,
            api=passage.api,
            version=passage.version,
            client_id=header.client_id,
            clock=target.clock,
            open_upstream=partial(OwnRequests, line),
            mute=self._connection.mute,
            request_size=len(frame),
            memory=self._memory,
            report_fault=target.filter_health.report,
        )
        is_one_way = passage.can_be_one_way and passage.api.is_one_way(body)
        request = FilteredRequest(passage, correlation_id, frame, body, context, is_one_way)
        outcome = run_filters(passage.request_filters, context, body, target.filter_timeout_ms)
        if not inspect.isawaitable(outcome):
            try:
                return self._follow(forward, request, outcome)
            except BaseException:
                request.abandon()
                raise
        self._gate.close(GateReason.FILTER)
        return self._wait(forward, request, outcome)

    async def _wait(
        self, forward: Forwarder, request: FilteredRequest, outcome: Awaitable[FilterOutcome]
    ) -> Answer:
        try:
            answer = self._follow(forward, request, await outcome)
        except BaseException:
            request.abandon()
            raise
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
        changed = outcome.verdict.message
        try:
            parts = request.encode(changed)
        except Exception as error:  # noqa: BLE001 (any value that a filter has set)
            return self._refuse(request, _misshapen(request, error))
        sent = SentRequest(changed or request.request, None)
        if passage.response_filters and isinstance(sent.message, FetchRequest):
            session = self._fetches.follow(sent.message)
            if session is None:
                # The client opens another session, whose partitions are known then.
                unknown = FilterFailure(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
                return self._refuse(request, FilterOutcome(unknown))
            if is_incremental(sent.message):
                sent = sent._replace(session=session)
        answer = forward(passage, request.correlation_id, parts, is_one_way=request.is_one_way)
        steps = request.response_steps()
        if (steps or request.context.notes) and inspect.isawaitable(answer):
            return self._filter_answer(request, sent, steps, answer)
        return answer

    async def _filter_answer(
        self,
        request: FilteredRequest,
        sent: SentRequest,
        steps: Sequence[FilterStep],
        awaited: Awaitable[Answer],
    ) -> Answer:
        """Pass a broker's response through its filters; return what the client gets.

        Filters decide about what a request names, so a response with more is not passed on.

        Args:
            request: the request of the client.
            sent: the request as the filters have changed it.
            steps: the functions that see the response.
            awaited: the response.

        Raises:
            ProtocolError: the response cannot be decoded, or has what was not asked for.
        """
        try:
            answer = await awaited
            if answer is None or not steps:
                return answer
            passage, frame = request.passage, _join(answer)
            request.context.response_size = len(frame)
            response = read_response(passage.api, passage.version, frame)
            sent.check(passage, response)
            return await self._filter_response(request, steps, response, answer)
        except BaseException:
            request.abandon()
            raise

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
        if message is None:
            return unchanged
        try:
            return request.respond(message)
        except Exception as error:  # noqa: BLE001 (any value that a filter has set)
            return self._refuse(request, _misshapen(request, error))

    def _end(self, request: FilteredRequest, outcome: FilterOutcome) -> Answer | Awaitable[Answer]:
        """Answer a request here, after a verdict other than to forward.

        The filters before the one that decided see the response as they would see a broker's.

        Raises:
            ProtocolError: the connection is to be closed.
        """
        context, is_one_way = request.context, request.is_one_way
        try:
            response = settle(context, request.request, outcome, is_one_way=is_one_way)
            if response is None:
                return None
            answer = request.respond(response)
        except ProtocolError:
            raise
        except Exception as error:  # noqa: BLE001 (any value that a filter has set)
            has_failed = isinstance(outcome.verdict, FilterFailure)
            return self._refuse(request, outcome if has_failed else _misshapen(request, error))
        earlier = request.response_steps(before=outcome.position)
        if not earlier:
            return answer
        context.response_size = len(_join(answer))
        return self._filter_response(request, earlier, response, answer)

    def _refuse(self, request: FilteredRequest, failure: FilterOutcome) -> Answer:
        """Refuse a request of which the filters have made something invalid.

        No filter sees the response: it repeats the names that the client has sent.

        Raises:
            ProtocolError: the request has no response.
        """
        request.abandon()
        _, body = read_request(request.passage.api, request.frame)
        response = settle(request.context, body, failure, is_one_way=request.is_one_way)
        return None if response is None else request.respond(response)


def _misshapen(request: FilteredRequest, error: Exception) -> FilterOutcome:
    """Report a request or response that cannot be encoded."""
    fault = f"made a {request.passage.api.name} that cannot be encoded: {error!r}"
    return blame(request.context, None, fault, error)


def _join(answer: list[Buffer] | tuple[Buffer, ...]) -> Buffer:
    """Return a response without its length, as one buffer."""
    return memoryview(b"".join(answer))[PREFIX_BYTES:]
