"""Kafka Streams groups (KIP-1071) in `__consumer_offsets`."""

from __future__ import annotations

from rookery.wire.message import (
    GroupId,
    MemberId,
    Message,
    PartitionId,
    TopicName,
    field,
    i8,
    i16,
    i32,
    i64,
    u16,
)


class StreamsGroupMetadataKey(Message, key=17, versions=range(1), flexible=None):
    """The group that the value describes."""

    group_id: GroupId


class StreamsGroupMetadataValue(Message, key=17, versions=range(1), flexible=0):
    """The group's epoch, which goes up when members, topology or topics change."""

    epoch: i32
    metadata_hash: i64  # of the topics read
    validated_topology_epoch: i32 = field(tag=0, default=-1)
    # The settings that the last assignment was computed with.
    last_assignment_configs: list[LastAssignmentConfig] | None = field(tag=1, factory=list)


class LastAssignmentConfig(Message):
    """A setting of the group."""

    key: str
    value: str


class StreamsGroupMemberMetadataKey(Message, key=19, versions=range(1), flexible=None):
    """A member of a group."""

    group_id: GroupId
    member_id: MemberId


class StreamsGroupMemberMetadataValue(Message, key=19, versions=range(1), flexible=0):
    """A member as it described itself."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str  # where the client connects from, not a broker's address
    rebalance_timeout_ms: i32 = -1
    topology_epoch: i32
    process_id: str
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue]


class Endpoint(Message):
    """Where the application answers interactive queries; never a broker's address."""

    host: str
    port: u16


class KeyValue(Message):
    """A name with a value."""

    key: str
    value: str


class StreamsGroupTargetAssignmentMetadataKey(Message, key=20, versions=range(1), flexible=None):
    """The group that the value describes."""

    group_id: GroupId


class StreamsGroupTargetAssignmentMetadataValue(Message, key=20, versions=range(1), flexible=0):
    """The group's epoch that the target assignment was computed for."""

    assignment_epoch: i32
    assignment_timestamp: i64 = field(tag=0, default=0)


class StreamsGroupTargetAssignmentMemberKey(Message, key=21, versions=range(1), flexible=None):
    """A member of a group."""

    group_id: GroupId
    member_id: MemberId


class StreamsGroupTargetAssignmentMemberValue(Message, key=21, versions=range(1), flexible=0):
    """The tasks in the member's target assignment."""

    active_tasks: list[TargetTasks]
    standby_tasks: list[TargetTasks]
    warmup_tasks: list[TargetTasks]


class TargetTasks(Message):
    """Target tasks of one subtopology: one for each partition of its input."""

    subtopology_id: str
    partitions: list[PartitionId]


class StreamsGroupCurrentMemberAssignmentKey(Message, key=22, versions=range(1), flexible=None):
    """A member of a group."""

    group_id: GroupId
    member_id: MemberId


class StreamsGroupCurrentMemberAssignmentValue(Message, key=22, versions=range(1), flexible=0):
    """The tasks that the member runs, and those it has been asked to give back."""

    member_epoch: i32
    previous_member_epoch: i32
    state: i8  # 1 stable, 2 must still give tasks back, 3 waits for others to do so
    active_tasks: list[OwnedTasks]
    standby_tasks: list[OwnedTasks]
    warmup_tasks: list[OwnedTasks]
    active_tasks_pending_revocation: list[OwnedTasks]
    standby_tasks_pending_revocation: list[OwnedTasks]
    warmup_tasks_pending_revocation: list[OwnedTasks]


class OwnedTasks(Message):
    """Tasks of one subtopology that a member runs."""

    subtopology_id: str
    partitions: list[PartitionId]
    # The epoch in which each task came to the member, in the same order.
    assignment_epochs: list[i32] | None = field(tag=0, factory=list)


class StreamsGroupTopologyKey(Message, key=23, versions=range(1), flexible=None):
    """The group that the value describes."""

    group_id: GroupId


class StreamsGroupTopologyValue(Message, key=23, versions=range(1), flexible=0):
    """The application's graph of processors, as its members described it."""

    epoch: i32
    subtopologies: list[Subtopology]


class Subtopology(Message):
    """One part of the graph and the topics that it reads, writes and remembers in."""

    subtopology_id: str
    source_topics: list[TopicName]
    source_topic_regex: list[str]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[TopicName]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[CopartitionGroup]


class TopicInfo(Message):
    """An internal topic."""

    name: TopicName
    partitions: i32  # how many; 0: as many as its sources have
    replication_factor: i16  # 0: the broker's default
    topic_configs: list[TopicConfig]


class TopicConfig(Message):
    """A setting of an internal topic."""

    key: str
    value: str


class CopartitionGroup(Message):
    """Topics that must have the same number of partitions, as positions in the lists above."""

    source_topics: list[i16]
    source_topic_regex: list[i16]
    repartition_source_topics: list[i16]
