"""Events of transactions: their producers, their contents and their ends.

All but the last three come from producers and name the producer id and epoch. An event of a fenced
producer is rejected when it is applied, whichever broker wrote it.
"""

from __future__ import annotations

from rookery.cluster.events.groupevents import OffsetCommitted
from rookery.wire.message import (
    GroupId,
    Message,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TransactionalId,
    field,
    i32,
    i64,
)


class TransactionInitialised(Message, key=80, versions=range(1), flexible=0):
    """A producer initialises a transactional id: earlier producers are fenced and aborted.

    A producer that names its current id and epoch recovers from an error this way (KIP-360). It is
    rejected if another producer has initialised the id since.
    """

    transactional_id: TransactionalId
    timeout_ms: i32
    producer_id: ProducerId = -1
    producer_epoch: ProducerEpoch = -1


class PartitionsAddedToTransaction(Message, key=81, versions=range(1), flexible=0):
    """A transaction is about to write to partitions; either all are added or none."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    places: list[TransactionPlace]


class TransactionPlace(Message):
    """One partition."""

    topic_id: TopicId
    partition: PartitionId


class OffsetsAddedToTransaction(Message, key=82, versions=range(1), flexible=0):
    """A transaction is about to commit a group's offsets."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    group_id: GroupId


class TransactionOffsetsCommitted(Message, key=83, versions=range(1), flexible=0):
    """A group's offsets, pending until the commit; valid only from the group's coordinator."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    group_id: GroupId
    group_epoch: i32
    offsets: list[OffsetCommitted]
    joins: bool = field(default=False)  # adds the group to the transaction by itself (KIP-890)


class TransactionEnded(Message, key=84, versions=range(1), flexible=0):
    """A producer commits or aborts its transaction."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    is_commit: bool
    raises_epoch: bool = field(default=False)  # each transaction has its own epoch (KIP-890)


class TransactionExpired(Message, key=85, versions=range(1), flexible=0):
    """A transaction was open for too long; void if it is not the one that was observed."""

    transactional_id: TransactionalId
    started: i64  # the entry with which it began


class TransactionalIdExpired(Message, key=86, versions=range(1), flexible=0):
    """A transactional id unused for a long time is removed; void if it was used since."""

    transactional_id: TransactionalId
    changed: i64  # the entry that changed it last, as it was seen


class MarkersWritten(Message, key=87, versions=range(1), flexible=0):
    """Markers end a producer's open records in partitions that no transaction here owns."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    is_commit: bool
    places: list[TransactionPlace]
