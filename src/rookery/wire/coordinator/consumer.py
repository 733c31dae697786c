"""Consumer groups of the new protocol (KIP-848) in `__consumer_offsets`.

A group is spread over many records, so that a change of one member is one small write: the group's
epoch, each member as it described itself, the target assignment of each and what each owns now.
"""

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


class ConsumerGroupMetadataKey(Message, key=3, versions=range(1), flexible=None):
    """The group that the value describes."""

    group_id: GroupId


class ConsumerGroupMetadataValue(Message, key=3, versions=range(1), flexible=0):
    """The group's epoch, which goes up when members or topics change."""

    epoch: i32
    metadata_hash: i64 = field(tag=0, default=0)  # of the topics subscribed to (KIP-1101)


class ConsumerGroupPartitionMetadataKey(Message, key=4, versions=range(1), flexible=None):
    """A group, in the form that Kafka 4.0 used."""

    group_id: GroupId


class ConsumerGroupPartitionMetadataValue(Message, key=4, versions=range(1), flexible=0):
    """The topics that the group was computed for; a hash has taken its place since Kafka 4.1."""

    topics: list[TopicMetadata]


class TopicMetadata(Message):
    """A topic as the coordinator saw it."""

    topic_id: TopicId
    topic_name: TopicName
    num_partitions: i32
    partition_metadata: list[PartitionMetadata]


class PartitionMetadata(Message):
    """The racks that hold a partition."""

    partition: PartitionId
    racks: list[str]


class ConsumerGroupMemberMetadataKey(Message, key=5, versions=range(1), flexible=None):
    """A member of a group."""

    group_id: GroupId
    member_id: MemberId


class ClassicMemberMetadata(Message):
    """The JoinGroup data of a classic member in a group of the new protocol."""

    session_timeout_ms: i32 = 0
    supported_protocols: list[ClassicProtocol] = field(factory=list)


class ClassicProtocol(Message):
    """An assignor that such a member supports, with its subscription."""

    name: str
    metadata: bytes  # see wire.protocols.consumer


class ConsumerGroupMemberMetadataValue(Message, key=5, versions=range(1), flexible=0):
    """A member as it described itself."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str  # where the client connects from, not a broker's address
    subscribed_topic_names: list[TopicName]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: i32 = -1
    server_assignor: str | None
    # Null for a member of the new protocol. When the tag is missing Kafka assumes an empty
    # structure, not null, so a null has to be written out: hence this default.
    classic_member_metadata: ClassicMemberMetadata | None = field(
        tag=0, nullable=0, factory=ClassicMemberMetadata
    )


class ConsumerGroupTargetAssignmentMetadataKey(Message, key=6, versions=range(1), flexible=None):
    """The group that the value describes."""

    group_id: GroupId


class ConsumerGroupTargetAssignmentMetadataValue(Message, key=6, versions=range(1), flexible=0):
    """The group's epoch that the target assignment was computed for."""

    assignment_epoch: i32
    assignment_timestamp: i64 = field(tag=0, default=0)


class ConsumerGroupTargetAssignmentMemberKey(Message, key=7, versions=range(1), flexible=None):
    """A member of a group."""

    group_id: GroupId
    member_id: MemberId


class ConsumerGroupTargetAssignmentMemberValue(Message, key=7, versions=range(1), flexible=0):
    """The target assignment of the member."""

    topic_partitions: list[TargetPartitions]


class TargetPartitions(Message):
    """Partitions of one topic in a member's target assignment."""

    topic_id: TopicId
    partitions: list[PartitionId]


class ConsumerGroupCurrentMemberAssignmentKey(Message, key=8, versions=range(1), flexible=None):
    """A member of a group."""

    group_id: GroupId
    member_id: MemberId


class ConsumerGroupCurrentMemberAssignmentValue(Message, key=8, versions=range(1), flexible=0):
    """The partitions that the member owns, and those it has been asked to revoke."""

    member_epoch: i32
    previous_member_epoch: i32
    state: i8  # 0 stable, 1 must still give partitions back, 2 waits for others to do so
    assigned_partitions: list[OwnedPartitions]
    partitions_pending_revocation: list[OwnedPartitions]


class OwnedPartitions(Message):
    """Partitions of one topic that a member owns."""

    topic_id: TopicId
    partitions: list[PartitionId]
    # The epoch in which each partition came to the member, in the same order.
    assignment_epochs: list[i32] | None = field(tag=0, factory=list)


class ConsumerGroupRegularExpressionKey(Message, key=16, versions=range(1), flexible=None):
    """A regular expression that members of a group subscribe by."""

    group_id: GroupId
    regular_expression: str


class ConsumerGroupRegularExpressionValue(Message, key=16, versions=range(1), flexible=0):
    """The topics that it matched when it was last looked up."""

    topics: list[TopicName]
    version: i64  # of the metadata image that it was looked up in
    timestamp: i64
