"""The cluster metadata cache: fetches missing entries and refreshes stale ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from rookery.client.connect.cluster import NO_NODE, ClusterView, PartitionView, TopicView
from rookery.client.connect.connections import Connections, Link
from rookery.client.connect.retry import Deadline, PersistentError
from rookery.client.settings import ClientSettings
from rookery.clock import Clock
from rookery.errors import ApiError, ErrorCode, Unavailable
from rookery.model.address import Address
from rookery.model.node import Node
from rookery.model.partition import TopicPartition
from rookery.wire.messages.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)


class PartitionLeader(NamedTuple):
    """A partition and the broker that leads it."""

    place: TopicPartition
    node: Node
    topic_id: bytes
    leader_epoch: int


class Metadata:
    """The cached cluster metadata and its age."""

    def __init__(self, settings: ClientSettings, connections: Connections, clock: Clock) -> None:
        self._settings = settings
        self._connections = connections
        self._clock = clock
        self._asked_at: dict[str, int] = {}
        # When each unknown topic was first missed.
        self._missed_at: dict[str, int] = {}
        # Why the last response did not describe a topic.
        self._refusals: dict[str, ErrorCode] = {}
        self._refreshing: dict[frozenset[str] | None, asyncio.Task[ClusterView]] = {}
        self.view = ClusterView()

    async def refresh(self, topics: Iterable[str] | None, deadline: Deadline) -> ClusterView:
        """Request metadata of some topics, or of all topics (None); return the metadata.

        Raises:
            Unavailable: no broker answered.
        """
        wanted = None if topics is None else frozenset(topics)
        task = self._refreshing.get(wanted)
        if task is None:
            task = self._refreshing[wanted] = asyncio.create_task(self._refresh(wanted, deadline))
            task.add_done_callback(lambda done: self._on_refreshed(wanted, done))
        return await asyncio.shield(task)

    async def fetch_all(self, deadline: Deadline) -> ClusterView:
        """Request all topics and discard all others."""
        self.view = replace(self.view, topics={})
        return await self.refresh(None, deadline)

    async def topic(self, name: str, deadline: Deadline) -> TopicView:
        """Return a topic; request it if it is missing or stale.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION, or access to the topic is denied.
        """
        if not self._is_fresh(name):
            await self.refresh([name], deadline)
        self._check(name)
        topic = self.view.topics.get(name)
        if topic is None:
            raise self._unknown(name)
        return topic

    async def locate(
        self, places: Iterable[TopicPartition], deadline: Deadline
    ) -> list[PartitionLeader]:
        """Find the leaders of partitions.

        Raises:
            ApiError: a partition does not exist, or has no leader at the moment.
        """
        places = list(places)
        missing = {place.topic for place in places if not self._has(place)}
        if missing:
            await self.refresh(missing, deadline)
        return [self.find(place) for place in places]

    def node(self, number: int) -> Node:
        """Return a broker by its id.

        Raises:
            Unavailable: the broker is not in the metadata.
        """
        node = self.view.nodes.get(number)
        if node is None:
            raise Unavailable(f"broker {number} is not on the cluster's map; it may be restarting")
        return node

    def leader(self, place: TopicPartition) -> Node | None:
        """Return the partition's leader if it is known and the topic's entry is not stale."""
        topic = self.view.topics.get(place.topic)
        view = topic.partitions.get(place.partition) if topic else None
        if view is None or not self._is_fresh(place.topic):
            return None
        return self.view.nodes.get(view.leader)

    def forget(self, topic: str) -> None:
        """Mark the topic's entry as stale."""
        self._asked_at.pop(topic, None)

    def forget_all(self) -> None:
        """Mark all entries as stale."""
        self._asked_at.clear()

    def learn_leader(self, place: TopicPartition, leader: int, epoch: int) -> bool:
        """Apply a broker's leader hint (KIP-951); return whether it was newer."""
        old = self.view
        self.view = old.with_leader(place, leader, epoch)
        return self.view is not old

    def learn_nodes(self, nodes: list[Node]) -> None:
        """Add brokers that a response named."""
        if nodes:
            self.view = self.view.with_nodes(nodes)

    async def link(self) -> Link:
        """Return a link to any broker.

        Raises:
            Unavailable: none can be reached; the message has the reason for each.
        """
        problems: list[Unavailable] = []
        for address in self._candidates():
            try:
                return await self._connections.get(address)
            except Unavailable as error:
                problems.append(error)
        reasons = "; ".join(str(problem) for problem in problems)
        raise Unavailable(f"no broker can be reached: {reasons}") from problems[-1]

    def _on_refreshed(self, wanted: frozenset[str] | None, task: asyncio.Task[ClusterView]) -> None:
        del self._refreshing[wanted]
        if not task.cancelled():
            task.exception()  # all waiters may have been cancelled, so retrieve it here

    def _candidates(self) -> list[Address]:
        """List the addresses to query: open connections, then known brokers, then bootstrap."""
        known = [node.address for node in self.view.nodes.values()]
        every = list(dict.fromkeys([*known, *self._settings.addresses]))
        return list(dict.fromkeys([*self._connections.usable(every), *every]))

    def _has(self, place: TopicPartition) -> bool:
        topic = self.view.topics.get(place.topic)
        return (
            topic is not None and place.partition in topic.partitions and self._is_fresh(topic.name)
        )

    def _is_fresh(self, topic: str) -> bool:
        asked = self._asked_at.get(topic)
        age = self._settings.metadata_max_age_ms
        return asked is not None and self._clock.monotonic_ms() - asked < age

    async def _refresh(self, topics: frozenset[str] | None, deadline: Deadline) -> ClusterView:
        link = await self.link()
        version = link.versions.choose(METADATA)
        request = MetadataRequest(
            topics=_list_topics(topics, version),
            allow_auto_topic_creation=False,
        )
        timeout_ms = deadline.cap(self._settings.request_timeout_ms)
        response = await link.call(METADATA, version, request, timeout_ms)
        if response.error_code is ErrorCode.REBOOTSTRAP_REQUIRED:
            self.view = ClusterView()
            raise Unavailable(f"broker {link.name} asks us to start from the bootstrap addresses")
        self._take(response)
        return self.view

    def _take(self, response: MetadataResponse) -> None:
        now = self._clock.monotonic_ms()
        self.view = self.view.with_answer(response)
        for topic in response.topics:
            name = topic.name or ""
            if topic.error_code is ErrorCode.NONE:
                self._asked_at[name] = now
                self._missed_at.pop(name, None)
                self._refusals.pop(name, None)
                continue
            self.forget(name)
            self._refusals[name] = topic.error_code
            if topic.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._missed_at.setdefault(name, now)

    def _check(self, name: str) -> None:
        """Raise the error that the last response had for a topic, if any."""
        code = self._refusals.get(name, ErrorCode.NONE)
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise self._unknown(name)
        if code is not ErrorCode.NONE:
            raise ApiError(code, f"topic {name!r}: {code.sentence}")

    def find(self, place: TopicPartition) -> PartitionLeader:
        """Find a partition's leader in the cached metadata.

        Raises:
            ApiError: the partition does not exist, or has no leader at the moment.
            Unavailable: the leader is not in the metadata.
        """
        self._check(place.topic)
        topic = self.view.topics.get(place.topic)
        if topic is None:
            raise self._unknown(place.topic)
        view = topic.partitions.get(place.partition)
        if view is None:
            raise _no_partition(place, topic)
        if view.leader == NO_NODE:
            self.forget(place.topic)
            raise _no_leader(place, view)
        return PartitionLeader(place, self.node(view.leader), topic.id, view.leader_epoch)

    def _unknown(self, name: str) -> ApiError:
        """Return the error for an unknown topic: retriable at first, then permanent."""
        now = self._clock.monotonic_ms()
        waited = now - self._missed_at.setdefault(name, now)
        text = f"topic {name!r} does not exist; create it first, or check its name"
        if waited < self._settings.unknown_topic_ms:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        del self._missed_at[name]
        return PersistentError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


def _list_topics(topics: frozenset[str] | None, version: int) -> list[MetadataRequestTopic] | None:
    if topics is None:
        # Version 0 requests all topics with an empty list.
        return [] if version == 0 else None
    return [MetadataRequestTopic(name=name) for name in sorted(topics)]


def _no_partition(place: TopicPartition, topic: TopicView) -> ApiError:
    count = len(topic.partitions)
    return ApiError(
        ErrorCode.INVALID_PARTITIONS,
        f"topic {place.topic!r} has no partition {place.partition}: "
        f"there are {count}, numbered from 0",
    )


def _no_leader(place: TopicPartition, view: PartitionView) -> ApiError:
    return ApiError(
        ErrorCode.LEADER_NOT_AVAILABLE,
        f"partition {place.text} has no leader at the moment; its replicas are on brokers "
        f"{list(view.replicas)}",
    )
