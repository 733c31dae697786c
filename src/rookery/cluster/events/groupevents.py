"""Events of groups: their coordinator, their members' state, and their committed offsets."""

from __future__ import annotations

from rookery.wire.message import (
    GroupId,
    LeaderEpoch,
    Message,
    Offset,
    PartitionId,
    TopicId,
    field,
    i32,
    i64,
)


class GroupClaimed(Message, key=60, versions=range(1), flexible=0):
    """A broker becomes a group's coordinator in a new epoch; void if the hash selects another."""

    group_id: GroupId


class GroupPersisted(Message, key=61, versions=range(1), flexible=0):
    """A group's new state; valid only from its coordinator, in its epoch, at the current version.

    A body that is too large for an entry comes in parts; only the last part takes effect.
    """

    group_id: GroupId
    epoch: i32
    version: i64  # the one that the coordinator has seen
    kind: str  # the protocol whose machine can read the body: classic or consumer
    body: bytes
    is_last: bool = field(default=True)


class GroupChanged(Message, key=68, versions=range(1), flexible=0):
    """A change to a group's state; void under the same conditions as `GroupPersisted`.

    It needs feature level `GROUP_CHANGES_LEVEL`, because older programs do not know it.
    """

    group_id: GroupId
    epoch: i32
    version: i64  # the one that the coordinator has seen
    change: bytes  # read by the machine of the group's kind, after the body and earlier changes


class OffsetsCommitted(Message, key=62, versions=range(1), flexible=0):
    """A group commits offsets; valid only from its coordinator."""

    group_id: GroupId
    epoch: i32
    offsets: list[OffsetCommitted]


class OffsetCommitted(Message):
    """The next offset to read in one partition."""

    topic_id: TopicId
    partition: PartitionId
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    retention_ms: i64 = -1  # -1: as the broker is set


class OffsetsDeleted(Message, key=63, versions=range(1), flexible=0):
    """A group's offsets in some partitions are deleted; valid only from its coordinator."""

    group_id: GroupId
    epoch: i32
    places: list[OffsetPlace]


class OffsetPlace(Message):
    """One partition."""

    topic_id: TopicId
    partition: PartitionId


class OffsetsExpired(Message, key=64, versions=range(1), flexible=0):
    """Offsets that were unused for long are deleted; void for one that was renewed since."""

    group_id: GroupId
    epoch: i32
    places: list[ExpiredPlace]


class ExpiredPlace(Message):
    """A partition, and the observed commit time of its offset."""

    topic_id: TopicId
    partition: PartitionId
    commit_ms: i64


class GroupDeleted(Message, key=65, versions=range(1), flexible=0):
    """A group and its offsets are deleted; void if it changed since it was seen without members."""

    group_id: GroupId
    epoch: i32
    version: i64


class GroupExpired(Message, key=66, versions=range(1), flexible=0):
    """A group without members and offsets is deleted; void if it has some by now."""

    group_id: GroupId
    epoch: i32
    version: i64


class OffsetsPublished(Message, key=67, versions=range(1), flexible=0):
    """A process that reads without a broker reports its offsets; void for a group with members.

    Such a group has no coordinator: its offsets exist so that its lag can be monitored.
    """

    group_id: GroupId
    offsets: list[OffsetCommitted]
