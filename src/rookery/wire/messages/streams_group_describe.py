"""StreamsGroupDescribe (key 89): show Kafka Streams groups with topology and tasks (KIP-1071).

It must go to each group's coordinator.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import (
    Api,
    ClientHost,
    ClientId,
    GroupId,
    InstanceId,
    MemberId,
    Message,
    PartitionCount,
    PartitionId,
    RackId,
    TopicName,
    i16,
    i32,
    i64,
    u16,
)


class StreamsGroupDescribeRequest(Message):
    """The groups to show."""

    group_ids: list[GroupId]
    include_authorized_operations: bool


class StreamsGroupDescribeResponse(Message):
    """One description for each group."""

    throttle_time_ms: i32 = 0
    groups: list[DescribedGroup]


class DescribedGroup(Message):
    """A group, its topology and its members; or why it cannot be shown."""

    error_code: ErrorCode
    error_message: str | None = None
    group_id: GroupId
    group_state: str  # Empty, NotReady, Assigning, Reconciling, Stable, Dead
    group_epoch: i32
    assignment_epoch: i32
    topology: Topology | None = None  # null: no member has described it yet
    members: list[Member]
    # A bit for each operation that the caller may do; the default: not requested.
    authorized_operations: i32 = -2147483648


class Topology(Message):
    """The application's graph of processors, cut into parts that run apart."""

    epoch: i32
    subtopologies: list[Subtopology] | None = None  # null: its topics are not known yet


class Subtopology(Message):
    """One part of the graph and the topics that it reads, writes and remembers in."""

    subtopology_id: str
    source_topics: list[TopicName]
    repartition_sink_topics: list[TopicName]
    state_changelog_topics: list[TopicInfo]
    repartition_source_topics: list[TopicInfo]


class TopicInfo(Message):
    """An internal topic."""

    name: TopicName
    partitions: PartitionCount  # how many; 0: as many as its sources have
    replication_factor: i16  # 0: the broker's default
    topic_configs: list[KeyValue]


class KeyValue(Message):
    """A name with a value."""

    key: str
    value: str


class Member(Message):
    """One process of the application: its identity, its current and its target tasks."""

    member_id: MemberId
    member_epoch: i32
    instance_id: InstanceId | None = None
    rack_id: RackId | None = None
    client_id: ClientId
    client_host: ClientHost  # where the client connects from, not a broker's address
    topology_epoch: i32
    process_id: str
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue]
    task_offsets: list[TaskOffset]
    task_end_offsets: list[TaskOffset]
    assignment: Assignment
    target_assignment: Assignment
    is_classic: bool


class Endpoint(Message):
    """Where the application answers interactive queries; never a broker's address."""

    host: str
    port: u16


class TaskOffset(Message):
    """How far a task has restored its state."""

    subtopology_id: str
    partition: PartitionId
    offset: i64  # a sum over the task's changelogs, not a place in one log


class Assignment(Message):
    """Tasks by what the member does with them."""

    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


class TaskIds(Message):
    """Tasks of one subtopology: one for each partition of its input."""

    subtopology_id: str
    partitions: list[PartitionId]


def refuse(request: StreamsGroupDescribeRequest, code: ErrorCode) -> StreamsGroupDescribeResponse:
    """Give every group the code and its sentence, and no members."""
    return StreamsGroupDescribeResponse(
        groups=[
            DescribedGroup(
                error_code=code,
                error_message=code.sentence,
                group_id=group_id,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                members=[],
            )
            for group_id in request.group_ids
        ]
    )


STREAMS_GROUP_DESCRIBE = Api(
    key=89,
    request=StreamsGroupDescribeRequest,
    response=StreamsGroupDescribeResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
    items=(Items("group_ids", "groups(group_id)"),),
)
