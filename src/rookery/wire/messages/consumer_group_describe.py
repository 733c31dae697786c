"""ConsumerGroupDescribe (key 69): show consumer groups of the new protocol (KIP-848).

It must go to each group's coordinator. Classic groups are shown by DescribeGroups.

Versions:
    1 adds which members still use the classic protocol (KIP-1099).
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
    PartitionId,
    RackId,
    TopicId,
    TopicName,
    TopicRegex,
    field,
    i8,
    i32,
)


class ConsumerGroupDescribeRequest(Message):
    """The groups to show."""

    group_ids: list[GroupId]
    include_authorized_operations: bool


class ConsumerGroupDescribeResponse(Message):
    """One description for each group."""

    throttle_time_ms: i32 = 0
    groups: list[DescribedGroup]


class DescribedGroup(Message):
    """A group, its epochs and its members; or why it cannot be shown."""

    error_code: ErrorCode
    error_message: str | None = None
    group_id: GroupId
    group_state: str  # Empty, Assigning, Reconciling, Stable, Dead
    group_epoch: i32
    assignment_epoch: i32
    assignor_name: str
    members: list[Member]
    # A bit for each operation that the caller may do; the default: not requested.
    authorized_operations: i32 = -2147483648


class Member(Message):
    """One consumer: its identity, its current and its target assignment."""

    member_id: MemberId
    instance_id: InstanceId | None = None
    rack_id: RackId | None = None
    member_epoch: i32
    client_id: ClientId
    client_host: ClientHost  # where the client connects from, not a broker's address
    subscribed_topic_names: list[TopicName]
    subscribed_topic_regex: TopicRegex | None = None
    assignment: Assignment
    target_assignment: Assignment
    member_type: i8 = field(since=1, default=-1)  # 0 classic, 1 consumer, -1 unknown


class Assignment(Message):
    """Partitions of several topics."""

    topic_partitions: list[TopicPartitions]


class TopicPartitions(Message):
    """Partitions of one topic."""

    topic_id: TopicId
    topic_name: TopicName
    partitions: list[PartitionId]


def refuse_group(group_id: str, code: ErrorCode, text: str) -> DescribedGroup:
    """Return a group that cannot be shown, with the reason in place of its members."""
    return DescribedGroup(
        error_code=code,
        error_message=text,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
    )


def refuse(request: ConsumerGroupDescribeRequest, code: ErrorCode) -> ConsumerGroupDescribeResponse:
    """Give every group the code and its sentence, and no members."""
    groups = [refuse_group(group_id, code, code.sentence) for group_id in request.group_ids]
    return ConsumerGroupDescribeResponse(groups=groups)


CONSUMER_GROUP_DESCRIBE = Api(
    key=69,
    request=ConsumerGroupDescribeRequest,
    response=ConsumerGroupDescribeResponse,
    versions=range(2),
    flexible=0,
    refuse=refuse,
    items=(Items("group_ids", "groups(group_id)"),),
)
