"""OffsetForLeaderEpoch: the end offset of a leader epoch.

Nothing is ever truncated here, and no response may suggest otherwise. Every epoch has an end, and
no reader's position is after the end of the epoch in which it was read.
"""

from __future__ import annotations

from bisect import bisect_right

from rookery.broker.call import Call, handles
from rookery.cluster.state.partition import Partition
from rookery.errors import ErrorCode
from rookery.wire.messages.offset_for_leader_epoch import (
    OFFSET_FOR_LEADER_EPOCH,
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


@handles(
    OFFSET_FOR_LEADER_EPOCH,
    versions=range(2, 5),
    mutates=False,
)
async def offset_for_leader_epoch(
    call: Call, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Return the end offsets of leader epochs, as of the log's head.

    The barrier ensures that epochs that other brokers have seen are known.
    """
    await call.services.replica.barrier()
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_find(call, topic.topic, part) for part in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _find(call: Call, name: str, part: OffsetForLeaderPartition) -> EpochEndOffset:
    topic = call.state.topics.by_name.get(name)
    if topic is None or not 0 <= part.partition < len(topic.partitions):
        return _refuse(part, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition = topic.partitions[part.partition]
    if part.current_leader_epoch > partition.leader_epoch:
        return _refuse(part, ErrorCode.UNKNOWN_LEADER_EPOCH)
    epoch, end = _end_of(partition, part.leader_epoch)
    return EpochEndOffset(
        error_code=ErrorCode.NONE, partition=part.partition, leader_epoch=epoch, end_offset=end
    )


def _end_of(partition: Partition, epoch: int) -> tuple[int, int]:
    """Return the newest epoch not above the one requested, and the offset after its last record."""
    if epoch < 0:
        return -1, -1
    after = bisect_right(partition.epochs, epoch, key=lambda known: known[0])
    if after == len(partition.epochs):
        return min(epoch, partition.leader_epoch), partition.next_offset
    newest = partition.epochs[after - 1][0] if after else epoch
    return newest, partition.epochs[after][1]


def _refuse(part: OffsetForLeaderPartition, code: ErrorCode) -> EpochEndOffset:
    return EpochEndOffset(error_code=code, partition=part.partition)
