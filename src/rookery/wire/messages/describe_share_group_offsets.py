"""DescribeShareGroupOffsets (key 90): show how far share groups have come (KIP-932).

Versions:
    1 adds the lag (KIP-1226).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import (
    ZERO_UUID,
    Api,
    GroupId,
    LeaderEpoch,
    Message,
    Offset,
    PartitionId,
    TopicId,
    TopicName,
    field,
    i32,
    i64,
)


class DescribeShareGroupOffsetsRequest(Message):
    """The groups to show."""

    groups: list[GroupRequest]


class GroupRequest(Message):
    """One group, and the topics of interest."""

    group_id: GroupId
    topics: list[TopicRequest] | None  # null: all that the group has read


class TopicRequest(Message):
    """Partitions of one topic."""

    topic_name: TopicName
    partitions: list[PartitionId]


class DescribeShareGroupOffsetsResponse(Message):
    """The progress of each group."""

    throttle_time_ms: i32 = 0
    groups: list[GroupResponse]


class GroupResponse(Message):
    """One group's progress, or why it cannot be shown."""

    group_id: GroupId
    topics: list[TopicResponse]
    error_code: ErrorCode
    error_message: str | None = None


class TopicResponse(Message):
    """Partitions of one topic, answered."""

    topic_name: TopicName
    topic_id: TopicId
    partitions: list[PartitionResponse]


class PartitionResponse(Message):
    """One partition: everything below the start offset is done with."""

    partition_index: PartitionId
    start_offset: Offset
    leader_epoch: LeaderEpoch
    lag: i64 = field(since=1, default=-1)  # records, not an offset; -1: unknown
    error_code: ErrorCode
    error_message: str | None = None


def refuse(
    request: DescribeShareGroupOffsetsRequest, code: ErrorCode
) -> DescribeShareGroupOffsetsResponse:
    """Give every group the code and its sentence, and no topics."""
    return DescribeShareGroupOffsetsResponse(
        groups=[
            GroupResponse(
                group_id=group.group_id,
                topics=[],
                error_code=code,
                error_message=code.sentence,
            )
            for group in request.groups
        ]
    )


def refuse_items(
    request: DescribeShareGroupOffsetsRequest, code: ErrorCode
) -> DescribeShareGroupOffsetsResponse:
    """Give the code to every partition, and to a group only if it asks for all of them."""
    return DescribeShareGroupOffsetsResponse(
        groups=[_refuse_group(group, code) for group in request.groups]
    )


def _refuse_group(group: GroupRequest, code: ErrorCode) -> GroupResponse:
    is_all = group.topics is None
    return GroupResponse(
        group_id=group.group_id,
        topics=[_refuse_topic(topic, code) for topic in group.topics or []],
        error_code=code if is_all else ErrorCode.NONE,
        error_message=code.sentence if is_all else None,
    )


def _refuse_topic(topic: TopicRequest, code: ErrorCode) -> TopicResponse:
    return TopicResponse(
        topic_name=topic.topic_name,
        topic_id=ZERO_UUID,
        partitions=[
            PartitionResponse(
                partition_index=partition,
                start_offset=-1,
                leader_epoch=-1,
                error_code=code,
                error_message=code.sentence,
            )
            for partition in topic.partitions
        ],
    )


DESCRIBE_SHARE_GROUP_OFFSETS = Api(
    key=90,
    request=DescribeShareGroupOffsetsRequest,
    response=DescribeShareGroupOffsetsResponse,
    versions=range(2),
    flexible=0,
    refuse=refuse,
    items=(
        Items(
            "groups(group_id).topics(topic_name).partitions",
            "groups(group_id).topics(topic_name).partitions(partition_index)",
        ),
    ),
    refuse_items=refuse_items,
)
