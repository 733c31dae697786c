"""OffsetForLeaderEpoch (key 23): where a leader epoch ended (KIP-101).

A reader that has records of an older epoch learns from it how far its log agrees with the leader's,
so a follower knows where to cut, and a consumer whether records it has read were lost.

Versions:
    1 the answer names the epoch that it found, which may be an older one (KIP-279).
    2 the reader's view of the leader is checked (KIP-320); Kafka 4's oldest.
    3 the request has the replica id: consumers may ask, and see nothing beyond the high watermark.
    4 flexible.
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
    i32,
)


class OffsetForLeaderEpochRequest(Message):
    """The epochs whose ends are sought."""

    replica_id: BrokerId = field(since=3, default=-2)  # -1 for a consumer; -2: unbounded, as before
    topics: list[OffsetForLeaderTopic]


class OffsetForLeaderTopic(Message):
    """The partitions of one topic to search."""

    topic: TopicName
    partitions: list[OffsetForLeaderPartition]


class OffsetForLeaderPartition(Message):
    """The epoch whose end to find in one partition."""

    partition: PartitionId
    current_leader_epoch: LeaderEpoch = field(since=2, default=-1)  # -1: do not check
    leader_epoch: LeaderEpoch  # the one whose end is sought


class OffsetForLeaderEpochResponse(Message):
    """The ends found."""

    throttle_time_ms: i32 = field(since=2, default=0)
    topics: list[OffsetForLeaderTopicResult]


class OffsetForLeaderTopicResult(Message):
    """The end offsets found in one topic."""

    topic: TopicName
    partitions: list[EpochEndOffset]


class EpochEndOffset(Message):
    """The newest epoch not above the one sought, and the offset after its last record."""

    error_code: ErrorCode
    partition: PartitionId
    leader_epoch: LeaderEpoch = field(since=1, default=-1)  # -1, as the offset: unknown
    end_offset: Offset = -1


def refuse(request: OffsetForLeaderEpochRequest, code: ErrorCode) -> OffsetForLeaderEpochResponse:
    """Give the code to every partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(error_code=code, partition=partition.partition)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


OFFSET_FOR_LEADER_EPOCH = Api(
    key=23,
    request=OffsetForLeaderEpochRequest,
    response=OffsetForLeaderEpochResponse,
    versions=range(5),
    flexible=4,
    refuse=refuse,
    items=(Items("topics(topic).partitions(partition)", "topics(topic).partitions(partition)"),),
)
