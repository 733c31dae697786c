"""StreamsGroupHeartbeat (key 88): a Kafka Streams process joins, stays in and leaves its group.

The member describes its topology; the coordinator spreads the topology's tasks over the members
and makes the internal topics (KIP-1071). Fields that have not changed may be null.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import (
    Api,
    GroupId,
    InstanceId,
    MemberId,
    Message,
    PartitionCount,
    PartitionId,
    RackId,
    TopicName,
    TopicRegex,
    field,
    i8,
    i16,
    i32,
    i64,
    u16,
)


class StreamsGroupHeartbeatRequest(Message):
    """A member's sign of life, with whatever has changed."""

    group_id: GroupId
    member_id: MemberId
    member_epoch: i32  # 0 joins, -1 leaves, -2 leaves for a while (static members)
    endpoint_information_epoch: i32  # the newest list of endpoints that the member has
    instance_id: InstanceId | None = None
    rack_id: RackId | None = None
    rebalance_timeout_ms: i32 = -1  # -1: unchanged
    topology: Topology | None = None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    process_id: str | None = None
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: bool = False


class Topology(Message):
    """The application's graph of processors, cut into parts that run apart."""

    epoch: i32
    subtopologies: list[Subtopology]


class Subtopology(Message):
    """One part of the graph and the topics that it reads, writes and remembers in."""

    subtopology_id: str
    source_topics: list[TopicName]
    source_topic_regex: list[TopicRegex]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[TopicName]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[CopartitionGroup]


class TopicInfo(Message):
    """An internal topic for the coordinator to create."""

    name: TopicName
    partitions: PartitionCount  # how many; 0: as many as its sources have
    replication_factor: i16  # 0: the broker's default
    topic_configs: list[KeyValue]


class KeyValue(Message):
    """A name with a value."""

    key: str
    value: str


class CopartitionGroup(Message):
    """Topics that must have the same number of partitions, as positions in the lists above."""

    source_topics: list[i16]
    source_topic_regex: list[i16]
    repartition_source_topics: list[i16]


class TaskIds(Message):
    """Tasks of one subtopology: one for each partition of its input."""

    subtopology_id: str
    partitions: list[PartitionId]


class Endpoint(Message):
    """Where the application answers interactive queries; never a broker's address."""

    host: str
    port: u16


class TaskOffset(Message):
    """How far a task has restored its state."""

    subtopology_id: str
    partition: PartitionId
    offset: i64  # a sum over the task's changelogs, not a place in one log


class StreamsGroupHeartbeatResponse(Message):
    """The member's epoch and its tasks."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    error_message: str | None = None
    member_id: MemberId
    member_epoch: i32
    heartbeat_interval_ms: i32
    acceptable_recovery_lag: i32
    task_offset_interval_ms: i32
    status: list[Status] | None = field(factory=list)
    active_tasks: list[TaskIds] | None = None  # null: unchanged; likewise the next two
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    endpoint_information_epoch: i32
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None  # null: unchanged


class Status(Message):
    """Something that keeps the group from running, such as a missing topic."""

    status_code: i8
    status_detail: str


class EndpointToPartitions(Message):
    """The partitions whose state can be queried at an endpoint."""

    user_endpoint: Endpoint
    active_partitions: list[TopicPartition]
    standby_partitions: list[TopicPartition]


class TopicPartition(Message):
    """Partitions of one topic."""

    topic: TopicName
    partitions: list[PartitionId]


def refuse(request: StreamsGroupHeartbeatRequest, code: ErrorCode) -> StreamsGroupHeartbeatResponse:
    """Give the code and its sentence, and no tasks."""
    return StreamsGroupHeartbeatResponse(
        error_code=code,
        error_message=code.sentence,
        member_id="",
        member_epoch=0,
        heartbeat_interval_ms=0,
        acceptable_recovery_lag=0,
        task_offset_interval_ms=0,
        endpoint_information_epoch=0,
    )


STREAMS_GROUP_HEARTBEAT = Api(
    key=88,
    request=StreamsGroupHeartbeatRequest,
    response=StreamsGroupHeartbeatResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
)
