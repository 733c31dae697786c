"""The proxy's knowledge of an upstream: its brokers, leaders and coordinators.

It comes from the proxy's own Metadata requests and from every answer that it forwards. It can be
stale at any time: a broker that does not lead a partition reports it, and the topic is then in
doubt until the next Metadata answer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from rookery.errors import ErrorCode
from rookery.model.address import Address
from rookery.wire.message import ZERO_UUID
from rookery.wire.messages.metadata import MetadataResponse, MetadataResponseTopic

TopicKey = str | bytes
"""A topic's name, or its id."""

NO_BROKER: Final = -1
"""Stands for any broker, if none in particular is known."""

_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_MAX_COORDINATORS: Final = 50_000
_MAX_TOPICS: Final = 200_000


class PartitionLeadership(NamedTuple):
    """The broker that leads a partition, and since which epoch."""

    leader_id: int
    epoch: int


def topic_key(name: str | None, topic_id: bytes | None) -> TopicKey:
    """Return the key of a topic: its name if it is given, else its id."""
    return name or topic_id or ZERO_UUID


class TopicLeaders:
    """The leaders of one topic's partitions."""

    __slots__ = ("is_doubtful", "leaders", "name", "topic_id")

    def __init__(self, name: str, topic_id: bytes) -> None:
        self.name = name
        self.topic_id = topic_id
        self.leaders: dict[int, PartitionLeadership] = {}
        self.is_doubtful = False

    def learn(self, partition: int, leadership: PartitionLeadership) -> None:
        """Record a leader, unless a newer one is known."""
        known = self.leaders.get(partition)
        if known is None or not 0 <= leadership.epoch < known.epoch:
            self.leaders[partition] = leadership


class UpstreamTopology:
    """The brokers of one upstream, and the leaders of its partitions."""

    def __init__(self) -> None:
        self.brokers: dict[int, Address] = {}
        self.controller_id = NO_BROKER
        self._by_name: dict[str, TopicLeaders] = {}
        self._by_id: dict[bytes, TopicLeaders] = {}

    def learn(self, response: MetadataResponse) -> None:
        """Learn from an upstream's answer to Metadata, with its own addresses."""
        if response.brokers:
            self.brokers = {
                each.node_id: Address(each.host, each.port) for each in response.brokers
            }
            self.controller_id = response.controller_id
        if len(self._by_name) > _MAX_TOPICS:
            # Topics that were deleted unnoticed; the others are soon learnt again.
            self._by_name.clear()
            self._by_id.clear()
        for topic in response.topics:
            self._learn_topic(topic)

    def learn_leader(
        self,
        topic: TopicKey,
        partition: int,
        leadership: PartitionLeadership,
        where: Address | None,
    ) -> None:
        """Learn the leader that a broker names in a refusal (KIP-951)."""
        if where is not None:
            self.brokers[leadership.leader_id] = where
        known = self.find(topic)
        if known is not None and leadership.leader_id in self.brokers:
            known.learn(partition, leadership)

    def find(self, topic: TopicKey) -> TopicLeaders | None:
        """Return the known leaders of a topic."""
        return self._by_id.get(topic) if isinstance(topic, bytes) else self._by_name.get(topic)

    def leader(self, topic: TopicKey, partition: int) -> int:
        """Return the broker that leads a partition; `NO_BROKER` if none is known."""
        known = self.find(topic)
        leadership = None if known is None else known.leaders.get(partition)
        if leadership is None or leadership.leader_id not in self.brokers:
            return NO_BROKER
        return leadership.leader_id

    def is_certain(self, topic: TopicKey, partitions: Iterable[int]) -> bool:
        """Return whether the leaders of these partitions are known and not in doubt."""
        known = self.find(topic)
        if known is None or known.is_doubtful:
            return False
        return all(self.leader(topic, partition) != NO_BROKER for partition in partitions)

    def doubt(self, topic: TopicKey) -> None:
        """Record that a broker did not lead a partition of this topic, or was away."""
        known = self.find(topic)
        if known is not None:
            known.is_doubtful = True

    def forget(self, topic: TopicKey) -> None:
        """Forget a topic that no longer exists."""
        known = self.find(topic)
        if known is not None:
            self._by_name.pop(known.name, None)
            self._by_id.pop(known.topic_id, None)

    def _learn_topic(self, topic: MetadataResponseTopic) -> None:
        if topic.error_code in _GONE:
            self.forget(topic.topic_id if topic.name is None else topic.name)
        if topic.name is None or (topic.error_code and not topic.partitions):
            return
        known = self._by_name.get(topic.name)
        topic_id = topic.topic_id
        if topic_id == ZERO_UUID and known is not None:
            # The answer is of a version without ids.
            topic_id = known.topic_id
        if known is None or known.topic_id not in {topic_id, ZERO_UUID}:
            # A new id under an old name is another topic, whose epochs start over.
            self.forget(topic.name)
            known = TopicLeaders(topic.name, topic_id)
        known.topic_id = topic_id
        for row in topic.partitions:
            known.learn(row.partition_index, PartitionLeadership(row.leader_id, row.leader_epoch))
        known.is_doubtful = False
        self._by_name[topic.name] = known
        if topic_id != ZERO_UUID:
            self._by_id[topic_id] = known


class CoordinatorCache:
    """The coordinators of groups and transactional ids, the last used ones."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, str], int] = OrderedDict()

    def find(self, key_type: int, key: str) -> int | None:
        """Return a coordinator; None if it is not known."""
        broker_id = self._known.get((key_type, key))
        if broker_id is not None:
            self._known.move_to_end((key_type, key))
        return broker_id

    def learn(self, key_type: int, key: str, broker_id: int) -> None:
        """Record a coordinator."""
        self._known[key_type, key] = broker_id
        self._known.move_to_end((key_type, key))
        if len(self._known) > _MAX_COORDINATORS:
            self._known.popitem(last=False)

    def forget(self, key_type: int, key: str) -> None:
        """Forget a coordinator that has moved or cannot be reached."""
        self._known.pop((key_type, key), None)
