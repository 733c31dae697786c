"""Committed offsets in `__consumer_offsets`, for groups of every protocol."""

from __future__ import annotations

from rookery.wire.message import (
    ZERO_UUID,
    GroupId,
    LeaderEpoch,
    Message,
    Offset,
    PartitionId,
    TopicId,
    TopicName,
    field,
    i64,
)


class LegacyOffsetCommitKey(Message, key=0, versions=range(1), flexible=None):
    """The oldest form of the key below."""

    group: GroupId
    topic: TopicName
    partition: PartitionId


class LegacyOffsetCommitValue(Message, key=0, versions=range(1), flexible=None):
    """The oldest form of the value below."""

    offset: Offset
    metadata: str
    commit_timestamp: i64


class OffsetCommitKey(Message, key=1, versions=range(1), flexible=None):
    """A partition that a group has committed an offset for."""

    group: GroupId
    topic: TopicName
    partition: PartitionId


class OffsetCommitValue(Message, key=1, versions=range(5), flexible=4):
    """The offset that was committed.

    Versions:
        1 has the time at which the offset expires, if the client set a retention time.
        3 adds the leader epoch of the last record read (KIP-320).
        4 adds the topic's id (KIP-848).
    """

    offset: Offset  # the next record to read
    leader_epoch: LeaderEpoch = field(since=3, default=-1)
    metadata: str
    commit_timestamp: i64
    expire_timestamp: i64 = field(since=1, until=1, default=-1)
    topic_id: TopicId = field(since=4, tag=0, default=ZERO_UUID)
