"""Looks up the leaders and coordinators that a request needs and the directory does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from rookery.errors import Error
from rookery.proxy.nodes.directory import NodeDirectory
from rookery.proxy.nodes.nodecall import NodeCall
from rookery.proxy.nodes.routes import RouteKind, route_of
from rookery.proxy.nodes.topology import TopicKey
from rookery.wire.message import Api, GroupId, PartitionId, TopicId, TopicName, TransactionalId
from rookery.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from rookery.wire.partition import cut
from rookery.wire.walk import visit

GROUP, TRANSACTION = 0, 1
"""The types of keys in FindCoordinator."""

KEY_TYPES: Final = {RouteKind.GROUP: GROUP, RouteKind.TRANSACTION: TRANSACTION}
_BY_LEADER: Final = frozenset({RouteKind.LEADER, RouteKind.PRODUCE, RouteKind.FETCH})
_FIRST_WITH_KEYS: Final = 4
_FIRST_WITH_IDS: Final = 12

Ask = Callable[[Api[Any, Any], Any, int], Any]
"""Asks any broker: API, request and lowest version; returns an awaitable of the response."""


class MissingPlaces(NamedTuple):
    """The lookups that a request needs before it can be sent."""

    has_brokers: bool
    topics: tuple[TopicKey, ...] = ()
    key_type: int = GROUP
    keys: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is missing."""
        return self.has_brokers and not self.topics and not self.keys


def coordinator_keys(call: NodeCall) -> list[str]:
    """Return the groups or transactional ids whose coordinators answer a request."""
    kind = GroupId if route_of(call.api).kind is RouteKind.GROUP else TransactionalId
    # A field that the version does not have is empty; so is the group of some simple consumers.
    named = dict.fromkeys(visit(call.request, kind))
    return [key for key in named if key] or list(named)


def read_partitions(call: NodeCall) -> dict[TopicKey, list[int]]:
    """Return the partitions that a request names, by topic."""
    partitions: dict[TopicKey, list[int]] = {}

    def note(name: str | None, topic_id: bytes | None, partition: int) -> bool:
        partitions.setdefault(name or topic_id or "", []).append(partition)
        return True

    cut(call.api, call.version, call.request, note, TopicName, TopicId, PartitionId)
    return partitions


def find_missing(directory: NodeDirectory, call: NodeCall) -> MissingPlaces:
    """Return the lookups for a request, except for those that were made just now."""
    kind = route_of(call.api).kind
    has_brokers = bool(directory.topology.brokers)
    if kind in _BY_LEADER:
        topics = doubtful_topics(directory, read_partitions(call))
        return MissingPlaces(has_brokers, topics)
    if kind in KEY_TYPES:
        key_type = KEY_TYPES[kind]
        keys = [
            key
            for key in coordinator_keys(call)
            if directory.coordinators.find(key_type, key) is None
            and directory.may_look_up((key_type, key))
        ]
        return MissingPlaces(has_brokers, (), key_type, tuple(keys))
    return MissingPlaces(has_brokers or kind not in {RouteKind.EVERY, RouteKind.RESOURCE})


def doubtful_topics(
    directory: NodeDirectory, partitions: dict[TopicKey, list[int]]
) -> tuple[TopicKey, ...]:
    """Return the topics whose leaders must be looked up."""
    return tuple(
        topic
        for topic, indexes in partitions.items()
        if not directory.topology.is_certain(topic, indexes) and directory.may_look_up(topic)
    )


async def look_up(directory: NodeDirectory, missing: MissingPlaces, ask: Ask) -> None:
    """Look up the missing places; those that cannot be found stay missing.

    The request is then sent to any broker, whose error the client gets.
    """
    try:
        if missing.topics or not missing.has_brokers:
            await _look_up_topics(directory, missing.topics, ask)
        for key in missing.keys:
            request = FindCoordinatorRequest(
                key=key, key_type=missing.key_type, coordinator_keys=[key]
            )
            response = await ask(FIND_COORDINATOR, request, 1 if missing.key_type else 0)
            directory.learn_coordinators(request, response)
    except Error:
        return


async def _look_up_topics(directory: NodeDirectory, topics: tuple[TopicKey, ...], ask: Ask) -> None:
    rows = [
        MetadataRequestTopic(topic_id=topic, name=None)
        if isinstance(topic, bytes)
        else MetadataRequestTopic(name=topic)
        for topic in topics
    ]
    has_ids = any(isinstance(topic, bytes) for topic in topics)
    request = MetadataRequest(topics=rows, allow_auto_topic_creation=False)
    response = await ask(METADATA, request, _FIRST_WITH_IDS if has_ids else _FIRST_WITH_KEYS)
    directory.learn_metadata(response)
