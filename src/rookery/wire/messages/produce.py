"""Produce (key 0): a producer hands record batches to the leaders of their partitions.

Versions:
    1 the response has the throttle time.
    2 it has the time of appending as well; records may carry timestamps (KIP-32).
    3 transactions, idempotence and the record batch of magic 2 (KIP-98); Kafka 4's oldest.
    4 the client knows KAFKA_STORAGE_ERROR (KIP-112).
    5 the response has the log's start offset.
    6 a throttled client is answered at once and waits by itself (KIP-219).
    7 batches may be packed with zstd (KIP-110).
    8 the response says which records were bad, and why (KIP-467).
    9 flexible.
    10 NOT_LEADER_OR_FOLLOWER comes with the new leader and its address (KIP-951).
    11 the client knows TRANSACTION_ABORTABLE (KIP-890).
    12 a transaction's partitions are added by producing to them (KIP-890).
    13 topics by id, no longer by name (KIP-516).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import (
    ZERO_UUID,
    Api,
    BrokerId,
    Host,
    LeaderEpoch,
    Message,
    Offset,
    PartitionId,
    Port,
    RackId,
    Records,
    TopicId,
    TopicName,
    TransactionalId,
    field,
    i16,
    i32,
    i64,
)


class ProduceRequest(Message):
    """Batches for any number of partitions that the receiver leads."""

    transactional_id: TransactionalId | None = field(since=3, default=None)
    # 0: send no answer; 1: once the leader has it; -1: once every in-sync replica has it.
    acks: i16
    timeout_ms: i32  # how long to wait for the replicas
    topic_data: list[TopicProduceData]


class TopicProduceData(Message):
    """Batches for one topic."""

    name: TopicName = field(until=12, default="")
    topic_id: TopicId = field(since=13, default=ZERO_UUID)
    partition_data: list[PartitionProduceData]


class PartitionProduceData(Message):
    """The records to append to one partition: since version 3, exactly one batch."""

    index: PartitionId
    records: Records | None


class ProduceResponse(Message):
    """The result for each partition's batch."""

    responses: list[TopicProduceResponse]
    throttle_time_ms: i32 = field(since=1, default=0)
    # The address of each leader that a partition's answer names.
    node_endpoints: list[NodeEndpoint] = field(since=10, tag=0, factory=list)


class TopicProduceResponse(Message):
    """The results for one topic's batches."""

    name: TopicName = field(until=12, default="")
    topic_id: TopicId = field(since=13, default=ZERO_UUID)
    partition_responses: list[PartitionProduceResponse]


class PartitionProduceResponse(Message):
    """Where a batch was put, or why it was not."""

    index: PartitionId
    error_code: ErrorCode
    base_offset: Offset  # of the batch's first record; -1 if it was refused
    # -1, unless the topic stamps records with the broker's time.
    log_append_time_ms: i64 = field(since=2, default=-1)
    log_start_offset: Offset = field(since=5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = field(since=8, factory=list)
    error_message: str | None = field(since=8, default=None)
    current_leader: LeaderIdAndEpoch | None = field(since=10, tag=0, default=None)


class BatchIndexAndErrorMessage(Message):
    """A record for whose sake the whole batch was refused."""

    batch_index: i32  # counted from the batch's first record
    batch_index_error_message: str | None = None


class LeaderIdAndEpoch(Message):
    """The current leader of the partition."""

    leader_id: BrokerId = -1
    leader_epoch: LeaderEpoch = -1


class NodeEndpoint(Message):
    """Where a leader named in the answer can be reached."""

    node_id: BrokerId
    host: Host
    port: Port
    rack: RackId | None = None


def refuse(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    """Give the code to every partition; the caller sends nothing at all if acks is 0."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(
                        index=partition.index,
                        error_code=code,
                        base_offset=-1,
                        error_message=code.sentence,
                    )
                    for partition in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


PRODUCE = Api(
    key=0,
    request=ProduceRequest,
    response=ProduceResponse,
    versions=range(14),
    flexible=9,
    refuse=refuse,
    items=(
        Items(
            "topic_data(name | topic_id).partition_data(index)",
            "responses(name | topic_id).partition_responses(index)",
        ),
    ),
    is_one_way=lambda request: not request.acks,
)
