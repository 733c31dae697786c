"""A snapshot of cluster metadata: brokers, topics, partitions and leaders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from rookery.errors import ErrorCode
from rookery.model.node import Node
from rookery.model.partition import TopicPartition
from rookery.model.uuid import ZERO
from rookery.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

NO_NODE: Final = -1


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition with its leader and replicas."""

    partition: int
    leader: int
    """The leader's broker id; -1 while there is none."""
    leader_epoch: int
    """The leader's epoch; -1 if the broker did not report it."""
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic and its partitions by number."""

    name: str
    id: bytes
    """Sixteen bytes; all zero if the broker has no topic ids."""
    partitions: Mapping[int, PartitionView]
    is_internal: bool = False

    @property
    def available(self) -> list[int]:
        """The partitions that have a leader, in order."""
        return [number for number, view in self.partitions.items() if view.leader != NO_NODE]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """All metadata that brokers have reported."""

    cluster_id: str | None = None
    controller_id: int = NO_NODE
    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)

    def with_answer(self, response: MetadataResponse) -> ClusterView:
        """Return the snapshot updated with a response; topics that it does not name are kept."""
        nodes = {
            broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
            for broker in response.brokers
        }
        topics = dict(self.topics)
        for answer in response.topics:
            if answer.name is None:
                continue
            if answer.error_code is ErrorCode.NONE:
                topics[answer.name] = self._newer(_topic(answer))
            elif answer.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                topics.pop(answer.name, None)
        return replace(
            self,
            cluster_id=response.cluster_id or self.cluster_id,
            controller_id=response.controller_id,
            nodes=nodes or self.nodes,
            topics=topics,
        )

    def with_leader(self, place: TopicPartition, leader: int, epoch: int) -> ClusterView:
        """Return the snapshot with a leader hint from a response (KIP-951), if it is newer."""
        topic = self.topics.get(place.topic)
        old = topic.partitions.get(place.partition) if topic else None
        if topic is None or old is None or epoch <= old.leader_epoch or leader not in self.nodes:
            return self
        new = replace(old, leader=leader, leader_epoch=epoch)
        grown = replace(topic, partitions={**topic.partitions, place.partition: new})
        return replace(self, topics={**self.topics, place.topic: grown})

    def with_nodes(self, nodes: list[Node]) -> ClusterView:
        """Return the snapshot with the brokers named in a response."""
        return replace(self, nodes={**self.nodes, **{node.id: node for node in nodes}})

    def _newer(self, topic: TopicView) -> TopicView:
        """Keep leaders that are newer than the response: a broker's metadata may be outdated."""
        known = self.topics.get(topic.name)
        if known is None or known.id != topic.id or topic.id == ZERO:
            return topic
        partitions = {
            number: _newest(known.partitions.get(number), view)
            for number, view in topic.partitions.items()
        }
        return replace(topic, partitions=partitions)


def _newest(known: PartitionView | None, told: PartitionView) -> PartitionView:
    return known if known is not None and known.leader_epoch > told.leader_epoch else told


def _topic(answer: MetadataResponseTopic) -> TopicView:
    partitions = sorted(answer.partitions, key=lambda partition: partition.partition_index)
    return TopicView(
        name=answer.name or "",
        id=answer.topic_id,
        partitions={part.partition_index: _partition(part) for part in partitions},
        is_internal=answer.is_internal,
    )


def _partition(answer: MetadataResponsePartition) -> PartitionView:
    return PartitionView(
        partition=answer.partition_index,
        leader=answer.leader_id,
        leader_epoch=answer.leader_epoch,
        replicas=tuple(answer.replica_nodes),
        isr=tuple(answer.isr_nodes),
        offline_replicas=tuple(answer.offline_replicas),
    )
