"""A topic's description for Metadata: its partitions, their leaders and replicas."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.errors import ErrorCode
from rookery.model.topicname import INTERNAL_TOPICS
from rookery.wire.messages.metadata import MetadataResponsePartition, MetadataResponseTopic


def describe(state: State, topic: Topic) -> MetadataResponseTopic:
    """Describe a topic and all its partitions."""
    by_leader = replicas_by_leader(topic, state.brokers.nodes)
    no_replicas: list[int] = []  # shared, since there may be ten thousand partitions
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[
            MetadataResponsePartition(
                error_code=(
                    ErrorCode.NONE if partition.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE
                ),
                partition_index=partition.index,
                leader_id=partition.leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=by_leader[partition.leader],
                isr_nodes=by_leader[partition.leader],
                offline_replicas=no_replicas,
            )
            for partition in topic.partitions
        ],
    )


def replicas(topic: Topic, leader: int, nodes: Sequence[int]) -> list[int]:
    """Return as many replicas as were requested, the leader first.

    The store provides durability, and any broker serves any partition, so these are the live
    brokers in turn. If there are fewer than requested, they are repeated. Tools that compare the
    replication factor with the requested one then find it, and no replica seems missing. An
    invented broker id would look like a broker that is down.
    """
    if not nodes or leader not in nodes:
        return []
    start = nodes.index(leader)
    return [nodes[(start + step) % len(nodes)] for step in range(topic.replication_factor)]


def replicas_by_leader(topic: Topic, nodes: Sequence[int]) -> dict[int, list[int]]:
    """Return the replicas by leader: few lists for many partitions."""
    return {leader: replicas(topic, leader, nodes) for leader in (-1, *nodes)}
