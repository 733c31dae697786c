"""Transactions in `__transaction_state`."""

from __future__ import annotations

from rookery.wire.message import (
    Message,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    TopicName,
    TransactionalId,
    field,
    i8,
    i16,
    i32,
    i64,
)


class TransactionLogKey(Message, key=0, versions=range(1), flexible=None):
    """A transactional id."""

    transactional_id: TransactionalId


class TransactionLogValue(Message, key=0, versions=range(2), flexible=1):
    """The transaction's producer, state and partitions.

    Versions:
        1 is flexible; its tags serve transactions whose producer epoch goes up with each (KIP-890).
    """

    producer_id: ProducerId
    previous_producer_id: ProducerId = field(since=1, tag=0, default=-1)
    next_producer_id: ProducerId = field(since=1, tag=1, default=-1)  # when epochs run out
    producer_epoch: ProducerEpoch
    next_producer_epoch: ProducerEpoch = field(since=1, tag=3, default=-1)
    transaction_timeout_ms: i32
    # 0 empty, 1 ongoing, 2 prepare commit, 3 prepare abort, 4 complete commit, 5 complete abort,
    # 6 dead, 7 prepare epoch fence
    transaction_status: i8
    transaction_partitions: list[PartitionsSchema] | None  # null while empty
    transaction_last_update_timestamp_ms: i64
    transaction_start_timestamp_ms: i64
    client_transaction_version: i16 = field(since=1, tag=2, default=0)


class PartitionsSchema(Message):
    """Partitions of one topic that take part in the transaction."""

    topic: TopicName
    partition_ids: list[PartitionId]
