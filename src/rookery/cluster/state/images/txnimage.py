"""The encoding of transactional ids and their open transactions in a state's image."""

from __future__ import annotations

from rookery.cluster.state.images.groupimage import OffsetImage
from rookery.cluster.state.txns import Transaction, TransactionOwner, TransactionState
from rookery.wire.message import (
    GroupId,
    Message,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TransactionalId,
    i8,
    i32,
    i64,
)


class TransactionImage(Message):
    """A transactional id and its open transaction."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    last_producer_id: ProducerId
    last_producer_epoch: ProducerEpoch
    timeout_ms: i32
    state: i8
    partitions: list[PlaceImage]
    groups: list[PendingImage]
    started: i64
    started_ms: i64
    changed: i64
    changed_ms: i64


class PlaceImage(Message):
    """A partition that a transaction writes to."""

    topic_id: TopicId
    partition: PartitionId


class PendingImage(Message):
    """Offsets of a group that take effect when the transaction is committed."""

    group_id: GroupId
    offsets: list[OffsetImage]


def transaction_image(transaction: Transaction) -> TransactionImage:
    """Write a transactional id."""
    return TransactionImage(
        transactional_id=transaction.id,
        producer_id=transaction.writer.producer_id,
        producer_epoch=transaction.writer.epoch,
        last_producer_id=transaction.last.producer_id,
        last_producer_epoch=transaction.last.epoch,
        timeout_ms=transaction.timeout_ms,
        state=transaction.state,
        partitions=[
            PlaceImage(topic_id=topic_id, partition=partition)
            for topic_id, partition in transaction.partitions
        ],
        groups=[
            PendingImage(
                group_id=group_id,
                offsets=[
                    OffsetImage(topic_id=topic_id, partition=partition, packed=packed)
                    for (topic_id, partition), packed in offsets.items()
                ],
            )
            for group_id, offsets in transaction.groups.items()
        ],
        started=transaction.started,
        started_ms=transaction.started_ms,
        changed=transaction.changed,
        changed_ms=transaction.changed_ms,
    )


def read_transaction(image: TransactionImage) -> Transaction:
    """Read a transactional id."""
    writer = TransactionOwner(image.producer_id, image.producer_epoch)
    transaction = Transaction(image.transactional_id, writer, image.timeout_ms)
    transaction.last = TransactionOwner(image.last_producer_id, image.last_producer_epoch)
    transaction.state = TransactionState(image.state)
    transaction.partitions = dict.fromkeys(
        (place.topic_id, place.partition) for place in image.partitions
    )
    transaction.groups = {
        group.group_id: {(each.topic_id, each.partition): each.packed for each in group.offsets}
        for group in image.groups
    }
    transaction.started, transaction.started_ms = image.started, image.started_ms
    transaction.changed, transaction.changed_ms = image.changed, image.changed_ms
    return transaction
