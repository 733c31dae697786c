"""Topics and partitions in the metadata log."""

from __future__ import annotations

from rookery.wire.message import (
    BrokerId,
    LeaderEpoch,
    Message,
    PartitionId,
    TopicId,
    TopicName,
    Uuid,
    field,
    i8,
    i32,
)

NO_CHANGE = -2
"""The leader of a PartitionChangeRecord that leaves the leader alone; -1 means none."""


class TopicRecord(Message, key=2, versions=range(1), flexible=0):
    """A topic was created; its partitions follow."""

    name: TopicName
    topic_id: TopicId


class PartitionRecord(Message, key=3, versions=range(3), flexible=0):
    """A partition as a whole: at its creation, and in snapshots.

    Versions:
        1 adds the log directory of each replica (KIP-858).
        2 adds the replicas that may lead though not in sync (KIP-966).
    """

    partition_id: PartitionId = -1
    topic_id: TopicId
    replicas: list[BrokerId]
    isr: list[BrokerId]
    removing_replicas: list[BrokerId]
    adding_replicas: list[BrokerId]
    leader: BrokerId = -1  # -1: none
    leader_recovery_state: i8 = field(tag=0, default=0)  # 1: after an unclean election
    leader_epoch: LeaderEpoch = -1
    partition_epoch: i32 = -1  # goes up with every change of the partition
    directories: list[Uuid] = field(since=1, factory=list)  # in the order of `replicas`
    eligible_leader_replicas: list[BrokerId] | None = field(since=2, tag=1, default=None)
    last_known_elr: list[BrokerId] | None = field(since=2, tag=2, default=None)


class PartitionChangeRecord(Message, key=5, versions=range(3), flexible=0):
    """The changed fields of a partition; null fields are unchanged.

    Versions:
        1 adds the log directory of each replica (KIP-858).
        2 adds the replicas that may lead though not in sync (KIP-966).
    """

    partition_id: PartitionId = -1
    topic_id: TopicId
    isr: list[BrokerId] | None = field(tag=0, default=None)
    leader: BrokerId = field(tag=1, default=NO_CHANGE)
    replicas: list[BrokerId] | None = field(tag=2, default=None)
    removing_replicas: list[BrokerId] | None = field(tag=3, default=None)
    adding_replicas: list[BrokerId] | None = field(tag=4, default=None)
    leader_recovery_state: i8 = field(tag=5, default=-1)  # -1: unchanged
    directories: list[Uuid] | None = field(since=1, tag=8, default=None)
    eligible_leader_replicas: list[BrokerId] | None = field(since=2, tag=6, default=None)
    last_known_elr: list[BrokerId] | None = field(since=2, tag=7, default=None)


class RemoveTopicRecord(Message, key=9, versions=range(1), flexible=0):
    """A topic was deleted, with its partitions."""

    topic_id: TopicId


class ClearElrRecord(Message, key=28, versions=range(1), flexible=0):
    """The eligible leader replicas of a topic no longer count."""

    topic_name: TopicName  # empty: of all topics
