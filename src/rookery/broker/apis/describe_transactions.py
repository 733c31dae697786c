"""DescribeTransactions: the producers of transactional ids, and their open transactions.

Group offsets are reported as in Kafka: as a partition of the offsets topic.
"""

from __future__ import annotations

from typing import Final

from rookery.broker.call import Call, handles
from rookery.cluster.state.txns import Transaction
from rookery.errors import ErrorCode
from rookery.logdir.server.translate.javahash import partition_of
from rookery.model.topicname import OFFSETS_TOPIC
from rookery.wire.messages.describe_transactions import (
    DESCRIBE_TRANSACTIONS,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

# Kafka's offsets.topic.num.partitions.
_OFFSETS_PARTITIONS: Final = 50


@handles(
    DESCRIBE_TRANSACTIONS,
    mutates=False,
)
async def describe_transactions(
    call: Call, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe the state and the partitions of transactional ids, as of the log's head."""
    await call.services.replica.barrier()
    by_id = call.state.transactions.by_id
    return DescribeTransactionsResponse(
        transaction_states=[
            _state(call, by_id[name]) if name in by_id else _refuse(name)
            for name in request.transactional_ids
        ]
    )


def _refuse(transactional_id: str) -> TransactionState:
    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST
    # Kafka leaves all other fields at the zero of their types.
    return TransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


def _state(call: Call, transaction: Transaction) -> TransactionState:
    return TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transaction.id,
        transaction_state=transaction.state.words,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.writer.producer_id,
        producer_epoch=transaction.writer.epoch,
        topics=_topics(call, transaction),
    )


def _topics(call: Call, transaction: Transaction) -> list[TopicData]:
    topics: dict[str, list[int]] = {}
    for topic_id, index in sorted(transaction.partitions):
        topic = call.state.topics.by_id.get(topic_id)
        if topic is not None:
            topics.setdefault(topic.name, []).append(index)
    kept = call.state.topics.by_name.get(OFFSETS_TOPIC)
    count = len(kept.partitions) if kept is not None else _OFFSETS_PARTITIONS
    groups = {partition_of(group_id, count) for group_id in transaction.groups}
    if groups:
        topics[OFFSETS_TOPIC] = sorted(groups)
    return [TopicData(topic=name, partitions=indexes) for name, indexes in topics.items()]
