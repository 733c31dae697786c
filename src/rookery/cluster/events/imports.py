"""Events of logs that come from elsewhere, such as a Kafka's disk, with the offsets they have.

    SegmentsStaged ──► SegmentsImported … ──► ProducersImported … ──► the last SegmentsImported
                                                                      and PartitionImported, as one

Nobody may have written to the partition: each event says where it believes the log to end, and is
refused if it ends elsewhere. The last two are one entry: a partition that has all its offsets has
all the rest.
"""

from __future__ import annotations

from rookery.wire.message import (
    LeaderEpoch,
    Message,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TransactionalId,
    i32,
    i64,
)


class SegmentsImported(Message, key=110, versions=range(1), flexible=0):
    """Segments that bear offsets become the end of a partition; void if it ends elsewhere."""

    topic_id: TopicId
    partition: PartitionId
    base_offset: Offset  # the partition's end; any, if nothing was ever in it
    segments: list[ImportedSegment]


class ImportedSegment(Message):
    """A segment; it begins where the one before ends."""

    object_id: i64
    end_offset: Offset
    size: i32
    max_timestamp: i64


class ProducersImported(Message, key=111, versions=range(1), flexible=0):
    """What a partition's producers sent last, and which of their transactions were aborted."""

    topic_id: TopicId
    partition: PartitionId
    end_offset: Offset  # the partition's, so far
    producers: list[ImportedProducer]
    aborted: list[ImportedAbort]


class ImportedProducer(Message):
    """A producer in one partition."""

    producer_id: ProducerId
    epoch: ProducerEpoch
    time_ms: i64
    first_offset: Offset  # of its open transaction; -1: none is open
    batches: list[ImportedBatch]  # oldest first, of this epoch


class ImportedBatch(Message):
    """One of the batches that a producer may send again."""

    first_sequence: i32
    records: i32
    base_offset: Offset


class ImportedAbort(Message):
    """A transaction that was aborted: see `cluster.state.aborted`."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    stable_offset: Offset


class PartitionImported(Message, key=112, versions=range(1), flexible=0):
    """A partition is all there: where it begins and ends, and whose epochs its batches bear."""

    topic_id: TopicId
    partition: PartitionId
    log_start: Offset
    end_offset: Offset
    cleaned_to: Offset
    append_time: i64  # -1, unless the broker sets the time of records
    epochs: list[ImportedEpoch]


class ImportedEpoch(Message):
    """A leader epoch and where it began."""

    epoch: LeaderEpoch
    start_offset: Offset


class TransactionalIdImported(Message, key=113, versions=range(1), flexible=0):
    """A transactional id has been used elsewhere; void if it is known here."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: i32
