"""OffsetDelete (key 47): forget a group's offsets in topics that it no longer reads (KIP-496).

Offsets of a topic that a live member subscribes to are kept: GROUP_SUBSCRIBED_TO_TOPIC.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, GroupId, Message, PartitionId, TopicName, i32


class OffsetDeleteRequest(Message):
    """The group, and the partitions whose offsets to delete."""

    group_id: GroupId
    topics: list[OffsetDeleteRequestTopic]


class OffsetDeleteRequestTopic(Message):
    """The partitions of one topic."""

    name: TopicName
    partitions: list[OffsetDeleteRequestPartition]


class OffsetDeleteRequestPartition(Message):
    """One partition."""

    partition_index: PartitionId


class OffsetDeleteResponse(Message):
    """The results for the group's offsets; with an error for the group, it names no topics."""

    error_code: ErrorCode
    throttle_time_ms: i32 = 0
    topics: list[OffsetDeleteResponseTopic]


class OffsetDeleteResponseTopic(Message):
    """The results in one topic."""

    name: TopicName
    partitions: list[OffsetDeleteResponsePartition]


class OffsetDeleteResponsePartition(Message):
    """Whether one partition's offset is gone."""

    partition_index: PartitionId
    error_code: ErrorCode


def refuse(request: OffsetDeleteRequest, code: ErrorCode) -> OffsetDeleteResponse:
    """Answer with the code for the group as a whole."""
    return OffsetDeleteResponse(error_code=code, topics=[])


def refuse_items(request: OffsetDeleteRequest, code: ErrorCode) -> OffsetDeleteResponse:
    """Give the code to every partition."""
    return OffsetDeleteResponse(
        error_code=ErrorCode.NONE,
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


OFFSET_DELETE = Api(
    key=47,
    request=OffsetDeleteRequest,
    response=OffsetDeleteResponse,
    versions=range(1),
    flexible=None,
    refuse=refuse,
    items=(
        Items(
            "topics(name).partitions(partition_index)", "topics(name).partitions(partition_index)"
        ),
    ),
    refuse_items=refuse_items,
)
