"""ReadShareGroupStateSummary (key 87): ask how far a share group has come, without the details.

The group coordinator sends it to the share coordinator when a client asks for the group's offsets
(KIP-932).

Versions:
    1 adds how many records past the start offset are done with, for the lag (KIP-1226).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import (
    Api,
    GroupId,
    LeaderEpoch,
    Message,
    Offset,
    PartitionId,
    TopicId,
    field,
    i32,
)


class ReadShareGroupStateSummaryRequest(Message):
    """The partitions to sum up."""

    group_id: GroupId
    topics: list[ReadStateSummaryData]


class ReadStateSummaryData(Message):
    """Partitions of one topic."""

    topic_id: TopicId
    partitions: list[PartitionData]


class PartitionData(Message):
    """One partition to sum up."""

    partition: PartitionId
    leader_epoch: LeaderEpoch


class ReadShareGroupStateSummaryResponse(Message):
    """The progress in each partition."""

    results: list[ReadStateSummaryResult]


class ReadStateSummaryResult(Message):
    """Partitions of one topic, answered."""

    topic_id: TopicId
    partitions: list[PartitionResult]


class PartitionResult(Message):
    """One partition: everything below the start offset is done with."""

    partition: PartitionId
    error_code: ErrorCode
    error_message: str | None = None
    state_epoch: i32
    leader_epoch: LeaderEpoch
    start_offset: Offset  # -1: the group has not begun to read here
    delivery_complete_count: i32 = field(since=1, default=-1)  # -1: unknown


def refuse(
    request: ReadShareGroupStateSummaryRequest, code: ErrorCode
) -> ReadShareGroupStateSummaryResponse:
    """Give every partition the code and its sentence, and no progress."""
    return ReadShareGroupStateSummaryResponse(
        results=[
            ReadStateSummaryResult(
                topic_id=topic.topic_id,
                partitions=[_refuse(partition, code) for partition in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _refuse(partition: PartitionData, code: ErrorCode) -> PartitionResult:
    return PartitionResult(
        partition=partition.partition,
        error_code=code,
        error_message=code.sentence,
        state_epoch=0,
        leader_epoch=-1,
        start_offset=-1,
    )


READ_SHARE_GROUP_STATE_SUMMARY = Api(
    key=87,
    request=ReadShareGroupStateSummaryRequest,
    response=ReadShareGroupStateSummaryResponse,
    versions=range(2),
    flexible=0,
    refuse=refuse,
    items=(
        Items("topics(topic_id).partitions(partition)", "results(topic_id).partitions(partition)"),
    ),
)
