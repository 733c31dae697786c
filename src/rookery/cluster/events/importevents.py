"""Events that import logs from elsewhere, such as a Kafka data directory, with their offsets.

    SegmentsStaged ──► SegmentsImported … ──► ProducersImported … ──► the last SegmentsImported
                                                                      and PartitionImported, as one

The partition must not be written to otherwise: each event states the expected log end, and is
rejected if the log ends elsewhere. The last two events share one entry, so a partition that has
all its offsets is complete.
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
    """Segments with offsets are appended to a partition; void if its log ends elsewhere."""

    topic_id: TopicId
    partition: PartitionId
    base_offset: Offset  # the partition's end; any, if nothing was ever in it
    segments: list[ImportedSegment]


class ImportedSegment(Message):
    """A segment; it begins at the end offset of the previous one."""

    object_id: i64
    end_offset: Offset
    size: i32
    max_timestamp: i64


class ProducersImported(Message, key=111, versions=range(1), flexible=0):
    """The last batches of a partition's producers, and their aborted transactions."""

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
    """One of the batches that a producer may resend."""

    first_sequence: i32
    records: i32
    base_offset: Offset


class ImportedAbort(Message):
    """An aborted transaction: see `cluster.state.aborts`."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    stable_offset: Offset


class PartitionImported(Message, key=112, versions=range(1), flexible=0):
    """The import of a partition is complete: its log start, log end and leader epochs."""

    topic_id: TopicId
    partition: PartitionId
    log_start: Offset
    end_offset: Offset
    cleaned_to: Offset
    append_time: i64  # -1, unless the broker sets the time of records
    epochs: list[ImportedEpoch]


class ImportedEpoch(Message):
    """A leader epoch and its start offset."""

    epoch: LeaderEpoch
    start_offset: Offset


class TransactionalIdImported(Message, key=113, versions=range(1), flexible=0):
    """A transactional id was in use elsewhere; void if it is known here."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    timeout_ms: i32
