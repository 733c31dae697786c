"""Sends one client's requests to the brokers that answer them, and joins the answers.

A request is sent from within `start`, before the next request of the client is processed, so that
requests to the same broker keep their order.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from rookery.errors import Error, ErrorCode, ProtocolError, Unavailable
from rookery.net.callqueue import CallOptions
from rookery.proxy.nodes.backends import Backend, BackendPool
from rookery.proxy.nodes.directory import NodeDirectory
from rookery.proxy.nodes.division import Division, divide, join_every
from rookery.proxy.nodes.errorcodes import has_code
from rookery.proxy.nodes.lookup import KEY_TYPES, coordinator_keys
from rookery.proxy.nodes.nodecall import NodeCall
from rookery.proxy.nodes.resourceroute import (
    REFUSED,
    choose_broker,
    names_brokers,
    rename_brokers,
    restore_names,
)
from rookery.proxy.nodes.routes import RouteKind, route_of
from rookery.proxy.nodes.topology import NO_BROKER, topic_key
from rookery.proxy.nodes.writeorder import MOVED
from rookery.wire.message import (
    GroupId,
    Message,
    PartitionId,
    TopicId,
    TopicName,
    TransactionalId,
)
from rookery.wire.messages.describe_log_dirs import DescribeLogDirsResponse
from rookery.wire.walk import visit

_ATTEMPTS: Final = 3
_PATIENCE_MS: Final = 5_000
_NO_COORDINATOR: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_NOT_CONTROLLER: Final = frozenset({ErrorCode.NOT_CONTROLLER})


class RoutedPart(NamedTuple):
    """A part of a request, and its answer."""

    part: Message
    answer: Awaitable[Message]
    backend: Backend | None = None
    """The connection that it was sent on; None if it is answered here."""

    def give_up(self) -> None:
        """Close the connection: its answer was invalid or late, and later requests would wait."""
        if self.backend is not None:
            self.backend.close()


class NodeRouter:
    """Routes the requests of one client, except Produce and Fetch."""

    def __init__(self, directory: NodeDirectory, backends: BackendPool) -> None:
        self._directory = directory
        self._backends = backends

    def start(self, call: NodeCall, options: CallOptions) -> Awaitable[Message]:
        """Send a request; return its response, with the brokers of the upstream.

        Raises:
            ProtocolError: no broker answers such requests.
            Unavailable: the brokers of the upstream are not known.
        """
        kind = route_of(call.api).kind
        match kind:
            case RouteKind.LEADER:
                return self._ask_leaders(call, options)
            case RouteKind.GROUP | RouteKind.TRANSACTION:
                return self._ask_coordinators(call, options, kind)
            case RouteKind.CONTROLLER:
                return self._ask_controller(call, options)
            case RouteKind.EVERY:
                return self._ask_every(call, options)
            case RouteKind.RESOURCE:
                return self._ask_owners(call, options)
            case RouteKind.ANY:
                return self._ask_any(call, options)
            case _:
                raise ProtocolError(f"no broker of the upstream answers {call.api.name} here")

    # Leaders.

    def _ask_leaders(self, call: NodeCall, options: CallOptions) -> Awaitable[Message]:
        topology = self._directory.topology
        division = divide(
            call.api, call.version, call.request,
            lambda name, topic_id, index: topology.leader(topic_key(name, topic_id), index),
            TopicName, TopicId, PartitionId,
            default=NO_BROKER,
        )  # fmt: skip
        parts = self._send_parts(call, division, options)
        return self._join(call, division, parts, ErrorCode.NOT_LEADER_OR_FOLLOWER, self._doubt)

    def _doubt(self, part: Message, response: Message) -> None:
        """Doubt the leaders of a part whose broker does not lead all of it."""
        if has_code(response, MOVED):
            for topic in (*visit(part, TopicName), *visit(part, TopicId)):
                self._directory.topology.doubt(topic)

    # Coordinators.

    def _ask_coordinators(
        self, call: NodeCall, options: CallOptions, kind: RouteKind
    ) -> Awaitable[Message]:
        key_type = KEY_TYPES[kind]
        mark = GroupId if kind is RouteKind.GROUP else TransactionalId
        keys = coordinator_keys(call)
        if not keys:
            # A producer without transactions gets its id from any broker.
            return self._ask_any(call, options)

        def find(key: str | None) -> int:
            known = self._directory.coordinators.find(key_type, key or "")
            return NO_BROKER if known is None else known

        def forget(part: Message, response: Message) -> None:
            if has_code(response, _NO_COORDINATOR):
                for key in visit(part, mark):
                    self._directory.coordinators.forget(key_type, key)

        division: Division[int, Any, Any]
        if len(keys) == 1:
            division = Division([(find(keys[0]), call.request)], [])
        else:
            division = divide(call.api, call.version, call.request, find, mark, default=NO_BROKER)
        parts = self._send_parts(call, division, options)
        return self._join(call, division, parts, ErrorCode.COORDINATOR_NOT_AVAILABLE, forget)

    # The controller, and configurations.

    def _ask_controller(self, call: NodeCall, options: CallOptions) -> Awaitable[Message]:
        controller_id = self._directory.topology.controller_id
        if controller_id not in self._directory.topology.brokers:
            controller_id = NO_BROKER
        division: Division[int, Any, Any]
        if names_brokers(call.request):
            # Clients do not know the brokers, so they cannot assign replicas to them.
            division = divide(
                call.api, call.version, call.request,
                lambda topic: REFUSED if topic.assignments else controller_id,
                default=controller_id,
            )  # fmt: skip
        else:
            division = Division([(controller_id, call.request)], [])
        parts = self._send_parts(
            call, division, options, refusal=ErrorCode.INVALID_REPLICA_ASSIGNMENT
        )
        return self._join(call, division, parts, None, self._note_controller)

    def _note_controller(self, _: Message, response: Message) -> None:
        if has_code(response, _NOT_CONTROLLER):
            self._directory.topology.controller_id = NO_BROKER

    def _ask_owners(self, call: NodeCall, options: CallOptions) -> Awaitable[Message]:
        """Ask the broker whose settings are named; any broker for all other settings."""
        directory = self._directory
        is_change = route_of(call.api).is_change
        brokers = sorted(directory.topology.brokers)

        def choose(resource: Any) -> int:
            return choose_broker(directory.instances, brokers, resource, is_change=is_change)

        division = divide(call.api, call.version, call.request, choose, default=NO_BROKER)
        parts = self._send_parts(
            call, division, options, refusal=ErrorCode.INVALID_REQUEST, convert=rename_brokers
        )
        return self._join(call, division, parts, ErrorCode.BROKER_NOT_AVAILABLE, restore_names)

    # Every broker, and any.

    def _ask_every(self, call: NodeCall, options: CallOptions) -> Awaitable[Message]:
        if not self._directory.topology.brokers:
            raise Unavailable("the upstream does not answer, so its brokers are not known")
        brokers = [
            broker_id
            for broker_id in sorted(self._directory.topology.brokers)
            if self._directory.instances.stands_for(broker_id)
        ]
        parts = [self._send(broker_id, call, call.request, options) for broker_id in brokers]
        return self._gather(call, brokers, parts)

    async def _gather(
        self, call: NodeCall, brokers: Sequence[int], parts: Sequence[RoutedPart]
    ) -> Message:
        answers: list[Message] = []
        for broker_id, routed in zip(brokers, parts, strict=True):
            try:
                answer = await routed.answer
            except Error:
                routed.give_up()
                answer = call.api.refuse(call.request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            if isinstance(answer, DescribeLogDirsResponse):
                # The folders of two brokers may have the same name.
                for row in answer.results:
                    row.log_dir = f"broker-{broker_id}:{row.log_dir}"
            answers.append(answer)
        if not answers:
            return call.refuse(call.request, ErrorCode.NONE)
        return join_every(answers)

    def _ask_any(self, call: NodeCall, options: CallOptions) -> Awaitable[Message]:
        # Any broker answers at once. One that is silent must not delay the client's requests.
        limit_ms = options.timeout_ms or _PATIENCE_MS
        options = replace(options, timeout_ms=min(limit_ms, _PATIENCE_MS))
        return self._repeat(call, self._send(NO_BROKER, call, call.request, options), options)

    async def _repeat(self, call: NodeCall, first: RoutedPart, options: CallOptions) -> Message:
        """Return the first answer of a few brokers to a request that changes nothing.

        Raises:
            Unavailable: none has answered.
        """
        problem: Error
        routed = first
        for attempt in range(_ATTEMPTS):
            if attempt:
                routed = self._send(NO_BROKER, call, call.request, options)
            try:
                return await routed.answer
            except Error as error:
                problem = error
                routed.give_up()
        raise Unavailable(str(problem))

    # Parts.

    def _send(self, target: int, call: NodeCall, part: Message, options: CallOptions) -> RoutedPart:
        backend = self._backends.get(target)
        return RoutedPart(part, call.send(backend, part, options), backend)

    def _send_parts(
        self,
        call: NodeCall,
        division: Division[int, Any, Any],
        options: CallOptions,
        *,
        refusal: ErrorCode = ErrorCode.INVALID_REQUEST,
        convert: Callable[[Message, int], Message] | None = None,
    ) -> list[RoutedPart]:
        """Send the parts of a request, except those that are refused here."""
        parts: list[RoutedPart] = []
        for target, part in division.parts:
            if target == REFUSED:
                parts.append(RoutedPart(part, _given(call.refuse(part, refusal))))
                continue
            sent = part if convert is None else convert(part, target)
            parts.append(self._send(target, call, sent, options)._replace(part=part))
        return parts

    async def _join(
        self,
        call: NodeCall,
        division: Division[int, Any, Any],
        parts: Sequence[RoutedPart],
        failure: ErrorCode | None,
        note: Callable[[Message, Message], None] | None = None,
    ) -> Message:
        """Wait for the answers to the parts, and join them.

        Args:
            call: the request.
            division: the division of the request.
            parts: that were sent.
            failure: the code for a part whose broker fails; None if that ends the connection of
                the client, as when a broker fails.
            note: called with each part and its answer.

        Raises:
            Unavailable: a broker fails, and there is no code for it.
        """
        answers: list[Message] = []
        for routed in parts:
            try:
                answer = await routed.answer
            except Error as error:
                routed.give_up()
                if failure is None:
                    if isinstance(error, Unavailable):
                        raise
                    raise Unavailable(str(error)) from error
                answer = call.refuse(routed.part, failure)
            if note is not None:
                note(routed.part, answer)
            answers.append(answer)
        joined: Message = division.join(answers)
        return joined


async def _given(response: Message) -> Message:
    return response
