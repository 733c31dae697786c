"""ListOffsets (key 2): finds the offset that belongs to a time, or a partition's first or last one.

Versions:
    0 several offsets a partition, of old log segments rather than of records.
    1 one offset, of the first record at or after the time (KIP-79); Kafka 4's oldest.
    2 isolation level: "latest" may mean the last stable offset (KIP-98).
    3 a throttled client is answered at once and waits by itself (KIP-219).
    4 leader epochs, asked and answered (KIP-320).
    5 a new leader may answer OFFSET_NOT_AVAILABLE (KIP-207).
    6 flexible.
    7 time -3: the record with the highest timestamp (KIP-734).
    8 time -4: the first offset still on the broker's own disk (KIP-405).
    9 time -5: the last offset in remote storage (KIP-1005).
    10 how long to wait for an answer from remote storage (KIP-1075).
    11 time -6: the first offset not yet in remote storage (KIP-1023).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import (
    Api,
    BrokerId,
    LeaderEpoch,
    Message,
    Offset,
    PartitionId,
    TopicName,
    field,
    i8,
    i32,
    i64,
)


class ListOffsetsRequest(Message):
    """A point in time for each partition."""

    replica_id: BrokerId  # -1 for a consumer; -2 for a tool that may ask a follower
    isolation_level: i8 = field(since=2, default=0)  # 0 read uncommitted, 1 read committed
    topics: list[ListOffsetsTopic]
    timeout_ms: i32 = field(since=10, default=0)


class ListOffsetsTopic(Message):
    """The partitions of one topic to search."""

    name: TopicName
    partitions: list[ListOffsetsPartition]


class ListOffsetsPartition(Message):
    """The time, or special value, to search one partition for."""

    partition_index: PartitionId
    current_leader_epoch: LeaderEpoch = field(since=4, default=-1)  # -1: do not check
    timestamp: i64  # ms; or -1 the end, -2 the start, and the others named above
    max_num_offsets: i32 = field(until=0, default=1)


class ListOffsetsResponse(Message):
    """The offsets found."""

    throttle_time_ms: i32 = field(since=2, default=0)
    topics: list[ListOffsetsTopicResponse]


class ListOffsetsTopicResponse(Message):
    """The offsets found in one topic."""

    name: TopicName
    partitions: list[ListOffsetsPartitionResponse]


class ListOffsetsPartitionResponse(Message):
    """The offset found in one partition; -1 if no record is that young."""

    partition_index: PartitionId
    error_code: ErrorCode
    old_style_offsets: list[Offset] = field(until=0, factory=list)  # newest first
    timestamp: i64 = field(since=1, default=-1)  # the found record's; -1 at start and end
    offset: Offset = field(since=1, default=-1)
    leader_epoch: LeaderEpoch = field(since=4, default=-1)


def refuse(request: ListOffsetsRequest, code: ErrorCode) -> ListOffsetsResponse:
    """Give the code to every partition."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


LIST_OFFSETS = Api(
    key=2,
    request=ListOffsetsRequest,
    response=ListOffsetsResponse,
    versions=range(12),
    flexible=6,
    refuse=refuse,
    items=(
        Items(
            "topics(name).partitions(partition_index)", "topics(name).partitions(partition_index)"
        ),
    ),
)
