"""DescribeTransactions (key 65): ask a transaction coordinator for the state of transactions.

Each transactional id must be asked of its own coordinator (KIP-664).
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
    i32,
    i64,
)


class DescribeTransactionsRequest(Message):
    """The transactional ids to describe."""

    transactional_ids: list[TransactionalId]


class DescribeTransactionsResponse(Message):
    """One state for each transactional id."""

    throttle_time_ms: i32 = 0
    transaction_states: list[TransactionState]


class TransactionState(Message):
    """A transactional id: its producer, its state, and the partitions it has written to."""

    error_code: ErrorCode
    transactional_id: TransactionalId
    transaction_state: str  # Empty, Ongoing, PrepareCommit, CompleteCommit, …
    transaction_timeout_ms: i32
    transaction_start_time_ms: i64  # -1: no transaction is open
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    topics: list[TopicData]


class TopicData(Message):
    """Partitions of one topic that take part in the transaction."""

    topic: TopicName
    partitions: list[PartitionId]


def refuse(request: DescribeTransactionsRequest, code: ErrorCode) -> DescribeTransactionsResponse:
    """Give every transactional id the code, and no state; numbers are zero, as in Kafka."""
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(
                error_code=code,
                transactional_id=transactional_id,
                transaction_state="",
                transaction_timeout_ms=0,
                transaction_start_time_ms=0,
                producer_id=0,
                producer_epoch=0,
                topics=[],
            )
            for transactional_id in request.transactional_ids
        ]
    )


DESCRIBE_TRANSACTIONS = Api(
    key=65,
    request=DescribeTransactionsRequest,
    response=DescribeTransactionsResponse,
    versions=range(1),
    flexible=0,
    refuse=refuse,
    items=(Items("transactional_ids", "transaction_states(transactional_id)"),),
)
