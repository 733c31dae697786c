"""ListOffsets: where a partition begins and ends, and where a time is."""

from __future__ import annotations

from rookery.broker.call import Call
from rookery.broker.registry import handles
from rookery.errors import ErrorCode
from rookery.model.offset import EARLIEST, LATEST
from rookery.wire.messages.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)


@handles(LIST_OFFSETS, versions=range(1, 12))
async def list_offsets(call: Call, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Answer as of the log's head: an end that another broker has moved must be seen."""
    await call.services.replica.barrier()
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_find(call, topic.name, part) for part in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _find(call: Call, name: str, part: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    topic = call.state.topics.by_name.get(name)
    if topic is None or not 0 <= part.partition_index < len(topic.partitions):
        return ListOffsetsPartitionResponse(
            partition_index=part.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    partition = topic.partitions[part.partition_index]
    offset = {EARLIEST: partition.log_start, LATEST: partition.next_offset}.get(part.timestamp, -1)
    return ListOffsetsPartitionResponse(
        partition_index=part.partition_index,
        error_code=ErrorCode.NONE,
        offset=offset,
        leader_epoch=partition.leader_epoch,
    )
