"""Events of transactions: who may write them, what is part of them, how they end.

All but the last three come from producers and name their id and epoch: what an earlier life of the
producer says is refused when it is applied, whoever brought it here.
"""

from __future__ import annotations

from rookery.cluster.events.groups import OffsetCommitted
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
    """A producer begins under a transactional id: earlier ones are fenced, what they left ends.

    One that names the id and epoch it has gets over an error by this (KIP-360); it is refused if
    another has come since.
    """

    transactional_id: TransactionalId
    timeout_ms: i32
    producer_id: ProducerId = -1
    producer_epoch: ProducerEpoch = -1


class PartitionsAddedToTransaction(Message, key=81, versions=range(1), flexible=0):
    """A transaction is about to write to partitions; all are added, or none."""

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
    """A group has read so far, if the transaction is committed; void but from its coordinator."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    group_id: GroupId
    group_epoch: i32
    offsets: list[OffsetCommitted]
    joins: bool = field(default=False)  # adds the group to the transaction by itself (KIP-890)


class TransactionEnded(Message, key=84, versions=range(1), flexible=0):
    """A producer commits its transaction, or aborts it."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    is_commit: bool
    raises_epoch: bool = field(default=False)  # each transaction has its own epoch (KIP-890)


class TransactionExpired(Message, key=85, versions=range(1), flexible=0):
    """A transaction was open for too long; void if it is not the one that was seen."""

    transactional_id: TransactionalId
    started: i64  # the entry with which it began


class TransactionalIdExpired(Message, key=86, versions=range(1), flexible=0):
    """A transactional id that nobody has used for long is forgotten; void if one has since."""

    transactional_id: TransactionalId
    changed: i64  # the entry that changed it last, as it was seen


class MarkersWritten(Message, key=87, versions=range(1), flexible=0):
    """Somebody ends what a producer has left open in partitions, and no transaction here owns."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    is_commit: bool
    places: list[TransactionPlace]
