"""Share groups (KIP-932) in `__consumer_offsets`; their progress is kept in `share_state`."""

from __future__ import annotations

from rookery.wire.message import (
    GroupId,
    MemberId,
    Message,
    PartitionId,
    TopicId,
    TopicName,
    field,
    i8,
    i32,
    i64,
)


class ShareGroupMemberMetadataKey(Message, key=10, versions=range(1), flexible=None):
    """A member of a group."""

    group_id: GroupId
    member_id: MemberId


class ShareGroupMemberMetadataValue(Message, key=10, versions=range(1), flexible=0):
    """A member as it described itself."""

    rack_id: str | None
    client_id: str
    client_host: str  # where the client connects from, not a broker's address
    subscribed_topic_names: list[TopicName]


class ShareGroupMetadataKey(Message, key=11, versions=range(1), flexible=None):
    """The group that the value describes."""

    group_id: GroupId


class ShareGroupMetadataValue(Message, key=11, versions=range(1), flexible=0):
    """The group's epoch, which goes up when members or topics change."""

    epoch: i32
    metadata_hash: i64  # of the topics subscribed to


class ShareGroupTargetAssignmentMetadataKey(Message, key=12, versions=range(1), flexible=None):
    """The group that the value describes."""

    group_id: GroupId


class ShareGroupTargetAssignmentMetadataValue(Message, key=12, versions=range(1), flexible=0):
    """The group's epoch that the target assignment was computed for."""

    assignment_epoch: i32
    assignment_timestamp: i64 = field(tag=0, default=0)


class ShareGroupTargetAssignmentMemberKey(Message, key=13, versions=range(1), flexible=None):
    """A member of a group."""

    group_id: GroupId
    member_id: MemberId


class ShareGroupTargetAssignmentMemberValue(Message, key=13, versions=range(1), flexible=0):
    """The target assignment of the member."""

    topic_partitions: list[TopicPartitions]


class TopicPartitions(Message):
    """Partitions of one topic."""

    topic_id: TopicId
    partitions: list[PartitionId]


class ShareGroupCurrentMemberAssignmentKey(Message, key=14, versions=range(1), flexible=None):
    """A member of a group."""

    group_id: GroupId
    member_id: MemberId


class ShareGroupCurrentMemberAssignmentValue(Message, key=14, versions=range(1), flexible=0):
    """The partitions that the member reads."""

    member_epoch: i32
    previous_member_epoch: i32
    state: i8  # always 0, stable: nothing has to be given back in a share group
    assigned_partitions: list[TopicPartitions]


class ShareGroupStatePartitionMetadataKey(Message, key=15, versions=range(1), flexible=None):
    """The group that the value describes."""

    group_id: GroupId


class ShareGroupStatePartitionMetadataValue(Message, key=15, versions=range(1), flexible=0):
    """The partitions whose progress the share coordinator keeps, or is about to keep or drop."""

    initializing_topics: list[TopicPartitionsInfo]
    initialized_topics: list[TopicPartitionsInfo]
    deleting_topics: list[TopicInfo]


class TopicPartitionsInfo(Message):
    """Partitions of one topic, whose name may still be needed after the topic is gone."""

    topic_id: TopicId
    topic_name: TopicName
    partitions: list[PartitionId]


class TopicInfo(Message):
    """One topic."""

    topic_id: TopicId
    topic_name: TopicName
