"""ShareGroupDescribe (key 77): show share groups and their members (KIP-932).

It must go to each group's coordinator.

Versions:
    1 is the first that Kafka 4.1 and later accept; 0 was a trial.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import (
    Api,
    ClientHost,
    ClientId,
    GroupId,
    MemberId,
    Message,
    PartitionId,
    RackId,
    TopicId,
    TopicName,
    i32,
)


class ShareGroupDescribeRequest(Message):
    """The groups to show."""

    group_ids: list[GroupId]
    include_authorized_operations: bool


class ShareGroupDescribeResponse(Message):
    """One description for each group."""

    throttle_time_ms: i32 = 0
    groups: list[DescribedGroup]


class DescribedGroup(Message):
    """A group, its epochs and its members; or why it cannot be shown."""

    error_code: ErrorCode
    error_message: str | None = None
    group_id: GroupId
    group_state: str  # Empty, Stable, Dead
    group_epoch: i32
    assignment_epoch: i32
    assignor_name: str
    members: list[Member]
    # A bit for each operation that the caller may do; the default: not requested.
    authorized_operations: i32 = -2147483648


class Member(Message):
    """One consumer: its identity and its assignment."""

    member_id: MemberId
    rack_id: RackId | None = None
    member_epoch: i32
    client_id: ClientId
    client_host: ClientHost  # where the client connects from, not a broker's address
    subscribed_topic_names: list[TopicName]
    assignment: Assignment


class Assignment(Message):
    """Partitions of several topics."""

    topic_partitions: list[TopicPartitions]


class TopicPartitions(Message):
    """Partitions of one topic."""

    topic_id: TopicId
    topic_name: TopicName
    partitions: list[PartitionId]


def refuse(request: ShareGroupDescribeRequest, code: ErrorCode) -> ShareGroupDescribeResponse:
    """Give every group the code and its sentence, and no members."""
    return ShareGroupDescribeResponse(
        groups=[
            DescribedGroup(
                error_code=code,
                error_message=code.sentence,
                group_id=group_id,
                group_state="",
                group_epoch=0,
                assignment_epoch=0,
                assignor_name="",
                members=[],
            )
            for group_id in request.group_ids
        ]
    )


SHARE_GROUP_DESCRIBE = Api(
    key=77,
    request=ShareGroupDescribeRequest,
    response=ShareGroupDescribeResponse,
    versions=range(1, 2),
    flexible=1,
    refuse=refuse,
    items=(Items("group_ids", "groups(group_id)"),),
)
