"""DescribeProducers (key 61): ask a partition's leader which producers it remembers.

An operator uses it to find a transaction that hangs and holds back the last stable offset
(KIP-664); it must go to the leader of each partition.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import (
    Api,
    Message,
    Offset,
    PartitionId,
    ProducerId,
    TopicName,
    WideProducerEpoch,
    i32,
    i64,
)


class DescribeProducersRequest(Message):
    """The partitions to look into."""

    topics: list[TopicRequest]


class TopicRequest(Message):
    """Partitions of one topic."""

    name: TopicName
    partition_indexes: list[PartitionId]


class DescribeProducersResponse(Message):
    """The producers of each partition asked for."""

    throttle_time_ms: i32 = 0
    topics: list[TopicResponse]


class TopicResponse(Message):
    """Partitions of one topic, answered."""

    name: TopicName
    partitions: list[PartitionResponse]


class PartitionResponse(Message):
    """The producers that one partition's leader knows, or its error."""

    partition_index: PartitionId
    error_code: ErrorCode
    error_message: str | None = None
    active_producers: list[ProducerState]


class ProducerState(Message):
    """One idempotent or transactional producer, as the leader last saw it."""

    producer_id: ProducerId
    producer_epoch: WideProducerEpoch  # wider here than the 16 bits it has everywhere else
    last_sequence: i32 = -1
    last_timestamp: i64 = -1
    coordinator_epoch: i32
    current_txn_start_offset: Offset = -1  # -1: no transaction is open


def refuse(request: DescribeProducersRequest, code: ErrorCode) -> DescribeProducersResponse:
    """Give every partition the code, and no producers."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(
                        partition_index=index,
                        error_code=code,
                        error_message=code.sentence,
                        active_producers=[],
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


DESCRIBE_PRODUCERS = Api(
    key=61,
    request=DescribeProducersRequest,
    response=DescribeProducersResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
    items=(Items("topics(name).partition_indexes", "topics(name).partitions(partition_index)"),),
)
