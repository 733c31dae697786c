"""Events of the log's bytes: what is committed, moved and dropped; and producer ids."""

from __future__ import annotations

from rookery.wire.message import (
    Message,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    TopicId,
    i16,
    i32,
    i64,
)


class Committed(Message, key=40, versions=range(1), flexible=0):
    """Batches are durable and get their offsets by this, in the order in which they stand here."""

    object_id: i64  # the journal or object that holds them; 0: the payload of this very entry
    extents: list[Extent]


class Extent(Message):
    """One batch: whose it is, where its bytes lie, and what offsets and verdicts depend on."""

    topic_id: TopicId
    partition: PartitionId
    position: i64
    size: i32
    records: i32  # offsets that the batch takes up
    attributes: i16
    max_timestamp: i64
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: i32


class PayloadsMoved(Message, key=41, versions=range(1), flexible=0):
    """Payloads of earlier entries now lie in a journal, so that those entries may be trimmed."""

    moves: list[PayloadMove]


class PayloadMove(Message):
    """The payload of one entry, as a whole."""

    entry: i64
    object_id: i64
    position: i64


class ObjectsDropped(Message, key=42, versions=range(1), flexible=0):
    """Journals that nothing lives in were unlinked."""

    object_ids: list[i64]


class ProducerIdsAllotted(Message, key=43, versions=range(1), flexible=0):
    """A process takes a run of producer ids for its clients."""

    count: i32


class ProducersExpired(Message, key=44, versions=range(1), flexible=0):
    """Idle producers of a partition are forgotten; void for one that has written since."""

    topic_id: TopicId
    partition: PartitionId
    producers: list[IdleProducer]


class IdleProducer(Message):
    """A producer, and the sequence that was its last when it was found idle."""

    producer_id: ProducerId
    last_sequence: i32


class RowsLost(Message, key=45, versions=range(1), flexible=0):
    """Batches were acknowledged but never reached the disk: their offsets become a gap."""

    topic_id: TopicId
    partition: PartitionId
    base_offsets: list[Offset]
