"""Random events of transactions that fit a state, most of the time."""

from __future__ import annotations

from random import Random
from typing import Any

from rookery.cluster.events.groupevents import OffsetCommitted
from rookery.cluster.events.logevents import BatchesCommitted, Extent
from rookery.cluster.events.txnevents import (
    MarkersWritten,
    OffsetsAddedToTransaction,
    PartitionsAddedToTransaction,
    TransactionalIdExpired,
    TransactionEnded,
    TransactionExpired,
    TransactionInitialised,
    TransactionOffsetsCommitted,
    TransactionPlace,
)
from rookery.cluster.state import producers
from rookery.cluster.state.state import State
from rookery.cluster.state.txns import Transaction
from rookery.records.batches import TRANSACTIONAL
from rookery.wire.message import Message


def transaction_event(random: Random, state: State) -> Message:
    """Return something that happens to a transaction, or is said by a producer that is gone."""
    name = f"x{random.randrange(3)}"
    transaction = state.transactions.by_id.get(name)
    if transaction is None or random.random() < 0.05:
        known = transaction.writer if transaction and random.random() < 0.5 else (-1, -1)
        return TransactionInitialised(
            transactional_id=name, timeout_ms=9, producer_id=known[0], producer_epoch=known[1]
        )
    if random.random() < 0.45:
        return _write(random, state, transaction)
    return _say(random, state, transaction)


def _say(random: Random, state: State, transaction: Transaction) -> Message:
    topic = random.choice(list(state.topics))
    place = TransactionPlace(
        topic_id=topic.id,
        partition=random.randrange(len(topic.partitions) + (random.random() < 0.1)),
    )
    epoch = transaction.writer.epoch - (random.random() < 0.1)
    producer_id = transaction.writer.producer_id + (random.random() < 0.05)
    who: dict[str, Any] = {
        "transactional_id": transaction.id,
        "producer_id": producer_id, "producer_epoch": max(epoch, 0),
    }  # fmt: skip
    group_id = f"g{random.randrange(4)}"
    group = state.groups.by_id.get(group_id)
    offset = OffsetCommitted(
        topic_id=topic.id, partition=0, offset=random.randrange(99), leader_epoch=-1, metadata=""
    )
    return random.choice(
        (
            PartitionsAddedToTransaction(places=[place], **who),
            PartitionsAddedToTransaction(places=[place], **who),
            OffsetsAddedToTransaction(group_id=group_id, **who),
            TransactionOffsetsCommitted(
                group_id=group_id,
                group_epoch=group.epoch if group else 0,
                offsets=[offset],
                joins=random.random() < 0.5,
                **who,
            ),
            TransactionEnded(
                is_commit=random.random() < 0.6, raises_epoch=random.random() < 0.5, **who
            ),
            TransactionEnded(
                is_commit=random.random() < 0.6, raises_epoch=random.random() < 0.5, **who
            ),
            TransactionExpired(
                transactional_id=transaction.id,
                started=transaction.started - (random.random() < 0.3),
            ),
            TransactionalIdExpired(
                transactional_id=transaction.id,
                changed=transaction.changed - (random.random() < 0.3),
            ),
            MarkersWritten(
                producer_id=producer_id,
                producer_epoch=max(epoch, 0),
                is_commit=random.random() < 0.5,
                places=[place],
            ),
        )
    )


def _write(random: Random, state: State, transaction: Transaction) -> BatchesCommitted:
    """Write a batch, mostly where the transaction may."""
    topic = random.choice(list(state.topics))
    topic_id, index = topic.id, random.randrange(len(topic.partitions))
    if transaction.partitions and random.random() < 0.7:
        topic_id, index = random.choice(list(transaction.partitions))
    partition = state.topics.partition(topic_id, index)
    producer_id, epoch = transaction.writer
    window = partition.producers.get(producer_id) if partition is not None else None
    sequence = 0
    if window is not None and producers.describe(window).epoch == epoch:
        sequence = producers.describe(window).last_sequence + 1
    records = random.randint(1, 3)
    return BatchesCommitted(
        object_id=0,
        extents=[
            Extent(
                topic_id=topic_id,
                partition=index,
                position=0,
                size=100,
                records=records,
                attributes=TRANSACTIONAL if random.random() < 0.9 else 0,
                max_timestamp=5,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=max(sequence - (random.random() < 0.05), 0),
                joins_transaction=random.random() < 0.5,
            )
        ],
    )
