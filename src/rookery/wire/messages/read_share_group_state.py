"""ReadShareGroupState (key 84): a partition's leader loads what a share group has done with it.

It asks the share coordinator, once, when it becomes the leader; the coordinator notes the leader
epoch and refuses older leaders from then on (KIP-932).
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
    i8,
    i16,
    i32,
)


class ReadShareGroupStateRequest(Message):
    """The partitions to load."""

    group_id: GroupId
    topics: list[ReadStateData]


class ReadStateData(Message):
    """Partitions of one topic."""

    topic_id: TopicId
    partitions: list[PartitionData]


class PartitionData(Message):
    """One partition, with the epoch of the leader that asks."""

    partition: PartitionId
    leader_epoch: LeaderEpoch


class ReadShareGroupStateResponse(Message):
    """The state of each partition."""

    results: list[ReadStateResult]


class ReadStateResult(Message):
    """Partitions of one topic, answered."""

    topic_id: TopicId
    partitions: list[PartitionResult]


class PartitionResult(Message):
    """One partition: everything below the start offset is done with."""

    partition: PartitionId
    error_code: ErrorCode
    error_message: str | None = None
    state_epoch: i32
    start_offset: Offset  # -1: the group has not begun to read here
    state_batches: list[StateBatch]


class StateBatch(Message):
    """The state that a run of records shares."""

    first_offset: Offset
    last_offset: Offset  # still part of the run
    delivery_state: i8  # 0 available, 2 acknowledged, 4 archived
    delivery_count: i16


def refuse(request: ReadShareGroupStateRequest, code: ErrorCode) -> ReadShareGroupStateResponse:
    """Give every partition the code and its sentence, and no state."""
    return ReadShareGroupStateResponse(
        results=[
            ReadStateResult(
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
        start_offset=-1,
        state_batches=[],
    )


READ_SHARE_GROUP_STATE = Api(
    key=84,
    request=ReadShareGroupStateRequest,
    response=ReadShareGroupStateResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
    items=(
        Items("topics(topic_id).partitions(partition)", "results(topic_id).partitions(partition)"),
    ),
)
