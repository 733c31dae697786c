"""AddPartitionsToTxn (key 24): names partitions that a transaction is about to write to (KIP-98).

Producers send it to the transaction coordinator, up to version 3. Later versions are for brokers:
they ask for many producers at once, and may just want to know whether a transaction is open.

Versions:
    1 a throttled client is answered at once and waits by itself (KIP-219).
    2 a fenced producer gets PRODUCER_FENCED (KIP-588).
    3 flexible.
    4 between brokers: several transactions, and a check without adding (KIP-890).
    5 TRANSACTION_ABORTABLE may be answered (KIP-890).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import (
    Api,
    Message,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    TopicName,
    TransactionalId,
    field,
    i32,
)


class AddPartitionsToTxnRequest(Message):
    """The partitions to add: to one transaction up to version 3, to any number from version 4."""

    transactions: list[AddPartitionsToTxnTransaction] = field(since=4, factory=list)
    v3_and_below_transactional_id: TransactionalId = field(until=3, default="")
    v3_and_below_producer_id: ProducerId = field(until=3, default=-1)
    v3_and_below_producer_epoch: ProducerEpoch = field(until=3, default=-1)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(until=3, factory=list)


class AddPartitionsToTxnTransaction(Message):
    """The partitions to add to one transaction."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    verify_only: bool = False  # only report whether the partitions are in it
    topics: list[AddPartitionsToTxnTopic]


class AddPartitionsToTxnTopic(Message):
    """Partitions of one topic."""

    name: TopicName
    partitions: list[PartitionId]


class AddPartitionsToTxnResponse(Message):
    """The partitions added: to one transaction up to version 3, to each from version 4."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode = field(since=4, default=ErrorCode.NONE)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(since=4, factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        until=3, factory=list
    )


class AddPartitionsToTxnResult(Message):
    """The partitions added to one transaction."""

    transactional_id: TransactionalId
    topic_results: list[AddPartitionsToTxnTopicResult]


class AddPartitionsToTxnTopicResult(Message):
    """The partitions of one topic that were added."""

    name: TopicName
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


class AddPartitionsToTxnPartitionResult(Message):
    """Whether one partition is in the transaction now."""

    partition_index: PartitionId
    partition_error_code: ErrorCode


def refuse(request: AddPartitionsToTxnRequest, code: ErrorCode) -> AddPartitionsToTxnResponse:
    """Answer with the code for all; up to version 3, give it to every partition."""
    return AddPartitionsToTxnResponse(
        error_code=code,
        results_by_topic_v3_and_below=[
            _refuse_topic(topic, code) for topic in request.v3_and_below_topics
        ],
    )


def refuse_items(request: AddPartitionsToTxnRequest, code: ErrorCode) -> AddPartitionsToTxnResponse:
    """Give the code to every partition."""
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=[_refuse_topic(topic, code) for topic in transaction.topics],
            )
            for transaction in request.transactions
        ],
        results_by_topic_v3_and_below=[
            _refuse_topic(topic, code) for topic in request.v3_and_below_topics
        ],
    )


def _refuse_topic(topic: AddPartitionsToTxnTopic, code: ErrorCode) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(partition_index=partition, partition_error_code=code)
            for partition in topic.partitions
        ],
    )


ADD_PARTITIONS_TO_TXN = Api(
    key=24,
    request=AddPartitionsToTxnRequest,
    response=AddPartitionsToTxnResponse,
    versions=range(6),
    flexible=3,
    refuse=refuse,
    items=(
        Items(
            "transactions(transactional_id).topics(name).partitions",
            "results_by_transaction(transactional_id).topic_results(name).results_by_partition(partition_index)",
        ),
        Items(
            "v3_and_below_topics(name).partitions",
            "results_by_topic_v3_and_below(name).results_by_partition(partition_index)",
        ),
    ),
    refuse_items=refuse_items,
)
