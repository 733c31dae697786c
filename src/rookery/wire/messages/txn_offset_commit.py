"""TxnOffsetCommit (key 28): a transaction says how far its producer has consumed.

A program that reads, transforms and writes sends its consumer offsets through its producer, to the
group coordinator. They count only once the transaction commits, so that input and output move
together or not at all.

Versions:
    1: the broker answers at once and the client does the waiting, when throttled (KIP-219).
    2: adds the leader epoch of what was consumed (KIP-320).
    3: flexible; names the group member, so that a member thrown out can be fenced (KIP-447).
    4: the answer may be TRANSACTION_ABORTABLE (KIP-890).
    5: joins the group to the transaction by itself, without AddOffsetsToTxn (KIP-890).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import (
    Api,
    GroupId,
    InstanceId,
    LeaderEpoch,
    MemberId,
    Message,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    TopicName,
    TransactionalId,
    field,
    i32,
)


class TxnOffsetCommitRequest(Message):
    """Offsets of one group, to be committed with one producer's open transaction."""

    transactional_id: TransactionalId
    group_id: GroupId
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    generation_id: i32 = field(since=3, default=-1)  # -1: not a member of the group
    member_id: MemberId = field(since=3, default="")
    group_instance_id: InstanceId | None = field(since=3, default=None)
    topics: list[TxnOffsetCommitRequestTopic]


class TxnOffsetCommitRequestTopic(Message):
    """A topic and the partitions that were consumed."""

    name: TopicName
    partitions: list[TxnOffsetCommitRequestPartition]


class TxnOffsetCommitRequestPartition(Message):
    """Where to continue in one partition: the offset after the last one consumed."""

    partition_index: PartitionId
    committed_offset: Offset
    committed_leader_epoch: LeaderEpoch = field(since=2, default=-1)  # -1: unknown
    committed_metadata: str | None = None  # a note of the client's own


class TxnOffsetCommitResponse(Message):
    """The result for each offset."""

    throttle_time_ms: i32 = 0
    topics: list[TxnOffsetCommitResponseTopic]


class TxnOffsetCommitResponseTopic(Message):
    """The results in one topic."""

    name: TopicName
    partitions: list[TxnOffsetCommitResponsePartition]


class TxnOffsetCommitResponsePartition(Message):
    """Whether one partition's offset now waits for the transaction's end."""

    partition_index: PartitionId
    error_code: ErrorCode


def refuse(request: TxnOffsetCommitRequest, code: ErrorCode) -> TxnOffsetCommitResponse:
    """Give the code to every partition that was asked for."""
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


TXN_OFFSET_COMMIT = Api(
    key=28,
    request=TxnOffsetCommitRequest,
    response=TxnOffsetCommitResponse,
    versions=range(6),
    flexible=3,
    refuse=refuse,
    items=(
        Items(
            "topics(name).partitions(partition_index)", "topics(name).partitions(partition_index)"
        ),
    ),
)
