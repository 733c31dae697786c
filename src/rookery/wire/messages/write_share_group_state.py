"""WriteShareGroupState (key 85): a partition's leader stores what a share group has done with it.

The share coordinator keeps it in `__share_group_state` (KIP-932).

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
    i8,
    i16,
    i32,
)


class WriteShareGroupStateRequest(Message):
    """The partitions whose state has changed."""

    group_id: GroupId
    topics: list[WriteStateData]


class WriteStateData(Message):
    """Partitions of one topic."""

    topic_id: TopicId
    partitions: list[PartitionData]


class PartitionData(Message):
    """One partition's news; both epochs must be the newest, else the write is refused."""

    partition: PartitionId
    state_epoch: i32
    leader_epoch: LeaderEpoch
    start_offset: Offset  # -1: unchanged
    delivery_complete_count: i32 = field(since=1, default=-1)  # -1: unknown
    state_batches: list[StateBatch]


class StateBatch(Message):
    """The state that a run of records shares."""

    first_offset: Offset
    last_offset: Offset  # still part of the run
    delivery_state: i8  # 0 available, 2 acknowledged, 4 archived
    delivery_count: i16


class WriteShareGroupStateResponse(Message):
    """Whether the state was stored."""

    results: list[WriteStateResult]


class WriteStateResult(Message):
    """Partitions of one topic, answered."""

    topic_id: TopicId
    partitions: list[PartitionResult]


class PartitionResult(Message):
    """One partition, answered."""

    partition: PartitionId
    error_code: ErrorCode
    error_message: str | None = None


def refuse(request: WriteShareGroupStateRequest, code: ErrorCode) -> WriteShareGroupStateResponse:
    """Give every partition the code and its sentence."""
    return WriteShareGroupStateResponse(
        results=[
            WriteStateResult(
                topic_id=topic.topic_id,
                partitions=[
                    PartitionResult(
                        partition=partition.partition,
                        error_code=code,
                        error_message=code.sentence,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


WRITE_SHARE_GROUP_STATE = Api(
    key=85,
    request=WriteShareGroupStateRequest,
    response=WriteShareGroupStateResponse,
    versions=range(2),
    flexible=0,
    refuse=refuse,
    items=(
        Items("topics(topic_id).partitions(partition)", "results(topic_id).partitions(partition)"),
    ),
)
