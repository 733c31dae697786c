"""AlterShareGroupOffsets (key 91): let a share group start elsewhere (KIP-932).

The group must be empty.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import (
    ZERO_UUID,
    Api,
    GroupId,
    Message,
    Offset,
    PartitionId,
    TopicId,
    TopicName,
    i32,
)


class AlterShareGroupOffsetsRequest(Message):
    """The offsets at which the group starts."""

    group_id: GroupId
    topics: list[TopicRequest]


class TopicRequest(Message):
    """Partitions of one topic."""

    topic_name: TopicName
    partitions: list[PartitionRequest]


class PartitionRequest(Message):
    """One partition with its new start."""

    partition_index: PartitionId
    start_offset: Offset


class AlterShareGroupOffsetsResponse(Message):
    """Whether the starts were moved."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    error_message: str | None = None
    responses: list[TopicResponse]


class TopicResponse(Message):
    """Partitions of one topic, answered."""

    topic_name: TopicName
    topic_id: TopicId
    partitions: list[PartitionResponse]


class PartitionResponse(Message):
    """One partition, answered."""

    partition_index: PartitionId
    error_code: ErrorCode
    error_message: str | None = None


def refuse(
    request: AlterShareGroupOffsetsRequest, code: ErrorCode
) -> AlterShareGroupOffsetsResponse:
    """Give the code and its sentence for the whole request."""
    return AlterShareGroupOffsetsResponse(
        error_code=code, error_message=code.sentence, responses=[]
    )


def refuse_items(
    request: AlterShareGroupOffsetsRequest, code: ErrorCode
) -> AlterShareGroupOffsetsResponse:
    """Give the code to every partition."""
    return AlterShareGroupOffsetsResponse(
        error_code=ErrorCode.NONE,
        responses=[_refuse_topic(topic, code) for topic in request.topics],
    )


def _refuse_topic(topic: TopicRequest, code: ErrorCode) -> TopicResponse:
    return TopicResponse(
        topic_name=topic.topic_name,
        topic_id=ZERO_UUID,
        partitions=[
            PartitionResponse(
                partition_index=partition.partition_index,
                error_code=code,
                error_message=code.sentence,
            )
            for partition in topic.partitions
        ],
    )


ALTER_SHARE_GROUP_OFFSETS = Api(
    key=91,
    request=AlterShareGroupOffsetsRequest,
    response=AlterShareGroupOffsetsResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
    items=(
        Items(
            "topics(topic_name).partitions(partition_index)",
            "responses(topic_name).partitions(partition_index)",
        ),
    ),
    refuse_items=refuse_items,
)
