"""Routes requests to the responsible broker, with retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import groupby
from typing import TypeVar

from rookery.client.connect.connections import Connections, Lane, Link
from rookery.client.connect.metadata import Metadata, PartitionLeader
from rookery.client.connect.retry import ClientRetrier, Deadline, is_stale, may_retry
from rookery.client.settings import ClientSettings
from rookery.errors import ApiError, Error, ErrorCode, Unavailable
from rookery.model.node import Node
from rookery.model.partition import TopicPartition
from rookery.wire.messages.find_coordinator import (
    FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

T = TypeVar("T")

GROUP, TRANSACTION = 0, 1
"""The key types of FindCoordinator."""

_MOVED = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class Router:
    """Finds the responsible broker and sends requests until a deadline."""

    def __init__(
        self,
        settings: ClientSettings,
        connections: Connections,
        metadata: Metadata,
        retrier: ClientRetrier,
    ) -> None:
        self.settings = settings
        self.connections = connections
        self.metadata = metadata
        self.retrier = retrier
        self._coordinators: dict[tuple[int, str], Node] = {}

    async def ask_any(
        self, what: str, ask: Callable[[Link, int], Awaitable[T]], deadline: Deadline
    ) -> T:
        """Query any broker; `ask` gets a link and its timeout in milliseconds."""

        async def attempt() -> T:
            link = await self.metadata.link()
            return await ask(link, self.request_ms(deadline))

        return await self.retrier.run(what, deadline, attempt, self.on_error)

    async def ask_node(
        self, what: str, number: int, ask: Callable[[Link, int], Awaitable[T]], deadline: Deadline
    ) -> T:
        """Query one broker, by its id."""

        async def attempt() -> T:
            if number not in self.metadata.view.nodes:
                await self.metadata.refresh([], deadline)
            link = await self.connections.get(self.metadata.node(number).address)
            return await ask(link, self.request_ms(deadline))

        return await self.retrier.run(what, deadline, attempt, self.on_error)

    async def ask_controller(
        self, what: str, ask: Callable[[Link, int], Awaitable[T]], deadline: Deadline
    ) -> T:
        """Query the controller, or the broker that forwards to the controller."""

        async def attempt() -> T:
            link = await self._controller(deadline)
            try:
                return await ask(link, self.request_ms(deadline))
            except ApiError as error:
                if error.code is ErrorCode.NOT_CONTROLLER:
                    await self.metadata.refresh([], deadline)
                raise

        return await self.retrier.run(what, deadline, attempt, self.on_error)

    async def ask_coordinator(
        self,
        what: str,
        key: str,
        ask: Callable[[Link, int], Awaitable[T]],
        deadline: Deadline,
        kind: int = GROUP,
        lane: Lane = Lane.QUESTIONS,
    ) -> T:
        """Query the coordinator of a group (or of a transactional id).

        The coordinator is looked up first, and again if it has moved.
        """

        async def attempt() -> T:
            node = await self.coordinator(key, deadline, kind)
            try:
                link = await self.connections.get(node.address, lane)
                return await ask(link, self.request_ms(deadline))
            except (ApiError, Unavailable) as error:
                if isinstance(error, Unavailable) or error.code in _MOVED:
                    self._coordinators.pop((kind, key), None)
                raise

        return await self.retrier.run(what, deadline, attempt, self.on_error)

    async def ask_leaders(
        self,
        what: str,
        places: Iterable[TopicPartition],
        ask: Callable[
            [Link, list[PartitionLeader], int], Awaitable[Mapping[TopicPartition, T | ApiError]]
        ],
        deadline: Deadline,
    ) -> dict[TopicPartition, T]:
        """Query each partition's leader; partitions that fail are retried, results are kept.

        `ask` gets a link, the partitions that this broker leads, and its timeout. It returns the
        result of each partition.

        Raises:
            ApiError: a partition's error that is not retriable.
            Unavailable: the deadline expired.
        """
        pending = list(dict.fromkeys(places))
        done: dict[TopicPartition, T] = {}

        async def attempt() -> dict[TopicPartition, T]:
            nonlocal pending
            located = await self.metadata.locate(pending, deadline)
            answers = await asyncio.gather(
                *(self._ask_leader(group, ask, deadline) for group in by_node(located)),
                return_exceptions=True,
            )
            problem = _gather(answers, done)
            pending = [place for place in pending if place not in done]
            if problem is not None:
                self._forget(pending, problem)
                raise problem
            return done

        return await self.retrier.run(what, deadline, attempt, self.on_error)

    async def coordinator(self, key: str, deadline: Deadline, kind: int = GROUP) -> Node:
        """Return the coordinator of a group (or of a transactional id).

        Raises:
            ApiError: there is none at the moment, or access is denied.
        """
        known = self._coordinators.get((kind, key))
        if known is not None:
            return known
        link = await self.metadata.link()
        version = link.versions.choose(FIND_COORDINATOR, lowest=1 if kind else 0)
        request = FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])
        answer = await link.call(FIND_COORDINATOR, version, request, self.request_ms(deadline))
        node = self._coordinators[kind, key] = _coordinator(answer, version, key)
        return node

    def request_ms(self, deadline: Deadline) -> int:
        """Return the timeout of one request."""
        return deadline.cap(self.settings.request_timeout_ms)

    async def _controller(self, deadline: Deadline) -> Link:
        if not self.metadata.view.nodes:
            await self.metadata.refresh([], deadline)
        node = self.metadata.view.nodes.get(self.metadata.view.controller_id)
        if node is None:
            return await self.metadata.link()
        try:
            return await self.connections.get(node.address)
        except Unavailable:
            # The metadata may be stale; any broker can refresh it.
            await self.metadata.refresh([], deadline)
            raise

    async def _ask_leader(
        self,
        group: list[PartitionLeader],
        ask: Callable[
            [Link, list[PartitionLeader], int], Awaitable[Mapping[TopicPartition, T | ApiError]]
        ],
        deadline: Deadline,
    ) -> Mapping[TopicPartition, T | ApiError]:
        link = await self.connections.get(group[0].node.address)
        return await ask(link, group, self.request_ms(deadline))

    def _forget(self, places: list[TopicPartition], problem: Error) -> None:
        if is_stale(problem):
            for place in places:
                self.metadata.forget(place.topic)

    def on_error(self, error: Error) -> None:
        """Mark all metadata as stale after a broker was unreachable."""
        if isinstance(error, Unavailable):
            self.metadata.forget_all()


def by_node(located: Iterable[PartitionLeader]) -> list[list[PartitionLeader]]:
    """Group partitions by broker, sorted by topic within."""
    rows = sorted(located, key=lambda row: (row.node.id, row.place))
    return [list(group) for _, group in groupby(rows, key=lambda row: row.node)]


def by_topic(located: Iterable[PartitionLeader]) -> list[tuple[str, bytes, list[PartitionLeader]]]:
    """Group partitions by topic, as requests need them; they must be sorted."""
    return [
        (topic, topic_id, list(group))
        for (topic, topic_id), group in groupby(
            located, key=lambda row: (row.place.topic, row.topic_id)
        )
    ]


def _gather(
    answers: Iterable[Mapping[TopicPartition, T | ApiError] | BaseException],
    done: dict[TopicPartition, T],
) -> Error | None:
    """Store results; return the worst problem, those that are not retriable first."""
    problems: list[Error] = []
    for answer in answers:
        if isinstance(answer, Error):
            problems.append(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            for place, result in answer.items():
                if isinstance(result, ApiError):
                    problems.append(result)
                else:
                    done[place] = result
    final = [error for error in problems if not may_retry(error)]
    return next(iter(final or problems), None)


def _coordinator(answer: FindCoordinatorResponse, version: int, key: str) -> Node:
    if version < 4:
        code, message = answer.error_code, answer.error_message
        node = Node(answer.node_id, answer.host, answer.port)
    else:
        row = next((row for row in answer.coordinators if row.key == key), None)
        if row is None:
            raise Unavailable(f"a broker's response does not name the coordinator of {key!r}")
        code, message = row.error_code, row.error_message
        node = Node(row.node_id, row.host, row.port)
    if code is not ErrorCode.NONE:
        raise ApiError(code, f"the coordinator of {key!r}: {message or code.sentence}")
    return node
