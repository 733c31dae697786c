"""Events of groups: who coordinates them, what their members agreed on, how far they have read."""

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
    """A broker becomes a group's coordinator, in a new epoch; void if the hash chooses another."""

    group_id: GroupId


class GroupPersisted(Message, key=61, versions=range(1), flexible=0):
    """A group's new state; void but from its coordinator, in its epoch, next to what it has seen.

    A body that is too large for an entry comes in parts: all but the last change nothing yet.
    """

    group_id: GroupId
    epoch: i32
    version: i64  # the one that the coordinator has seen
    kind: str  # the protocol whose machine can read the body: classic or consumer
    body: bytes
    is_last: bool = field(default=True)


class GroupChanged(Message, key=68, versions=range(1), flexible=0):
    """What changes of a group's state; void under the same conditions as its state.

    It needs feature level `GROUP_CHANGES_LEVEL`, since older programs do not know it.
    """

    group_id: GroupId
    epoch: i32
    version: i64  # the one that the coordinator has seen
    change: bytes  # read by the machine of the group's kind, after the body and earlier changes


class OffsetsCommitted(Message, key=62, versions=range(1), flexible=0):
    """A group has read so far; void but from its coordinator."""

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
    """A group's offsets in some partitions are forgotten; void but from its coordinator."""

    group_id: GroupId
    epoch: i32
    places: list[OffsetPlace]


class OffsetPlace(Message):
    """One partition."""

    topic_id: TopicId
    partition: PartitionId


class OffsetsExpired(Message, key=64, versions=range(1), flexible=0):
    """Offsets that nobody has used for long are forgotten; void for one that was renewed since."""

    group_id: GroupId
    epoch: i32
    places: list[ExpiredPlace]


class ExpiredPlace(Message):
    """A partition, and when its offset had been committed, as it was seen."""

    topic_id: TopicId
    partition: PartitionId
    commit_ms: i64


class GroupDeleted(Message, key=65, versions=range(1), flexible=0):
    """A group goes, offsets and all; void if it changed since it was found to have no members."""

    group_id: GroupId
    epoch: i32
    version: i64


class GroupExpired(Message, key=66, versions=range(1), flexible=0):
    """A group that has neither members nor offsets is forgotten; void if it has got some since."""

    group_id: GroupId
    epoch: i32
    version: i64


class OffsetsPublished(Message, key=67, versions=range(1), flexible=0):
    """A process that reads without a broker has read so far; void for a group that has members.

    Nobody coordinates such a group: its offsets are for those who watch how far it is behind.
    """

    group_id: GroupId
    offsets: list[OffsetCommitted]
