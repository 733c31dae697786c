"""Events of the log's data: commits, replacements and deletions; and producer ids."""

from __future__ import annotations

from rookery.wire.message import (
    Message,
    Offset,
    PartitionId,
    ProducerEpoch,
    ProducerId,
    TopicId,
    field,
    i8,
    i16,
    i32,
    i64,
)


class BatchesCommitted(Message, key=40, versions=range(1), flexible=0):
    """Batches are durable; this event assigns their offsets, in the order of the list."""

    object_id: i64  # the journal or object that holds them; 0: the payload of this very entry
    extents: list[Extent]


class Extent(Message):
    """One batch: its partition, its location, and the fields that decide offsets and outcome."""

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
    joins_transaction: bool = False  # adds its partition to its transaction by itself (KIP-890)


class ObjectsDropped(Message, key=42, versions=range(1), flexible=0):
    """Condemned objects were deleted and are removed from the state."""

    object_ids: list[i64]


class ProducerIdsAllotted(Message, key=43, versions=range(1), flexible=0):
    """A process allocates a range of producer ids for its clients."""

    count: i32


class ProducersExpired(Message, key=44, versions=range(1), flexible=0):
    """Idle producers of a partition are removed; void for one that has written since."""

    topic_id: TopicId
    partition: PartitionId
    producers: list[IdleProducer]


class IdleProducer(Message):
    """A producer, and its last sequence when it was found idle."""

    producer_id: ProducerId
    last_sequence: i32
    time_ms: i64 = field(tag=0, default=-1)  # of its last batch or marker then; -1: not known


class RowsLost(Message, key=45, versions=range(1), flexible=0):
    """Batches were acknowledged but never reached the disk: their offsets become a gap."""

    topic_id: TopicId
    partition: PartitionId
    base_offsets: list[Offset]


class SegmentsStaged(Message, key=46, versions=range(1), flexible=0):
    """Segments are about to be written: this event settles their names before their bytes."""

    segments: list[StagedSegment]


class StagedSegment(Message):
    """A planned segment; its outcome is either the plain name or a name that includes its id."""

    object_id: i64
    topic_id: TopicId
    partition: PartitionId
    base_offset: Offset


class RowsReplaced(Message, key=47, versions=range(1), flexible=0):
    """Rows were rewritten into an object; a range counts only if its rows are unchanged."""

    object_id: i64
    ranges: list[ReplacedRange]


class ReplacedRange(Message):
    """Whole rows of one partition, and the rows that replace them for the same offsets."""

    topic_id: TopicId
    partition: PartitionId
    base_offset: Offset
    end_offset: Offset
    fingerprint: i64  # of the rows that were read
    kind: i8
    cleaned_to: Offset  # -1: not compacted
    pieces: list[RowPiece]


class RowPiece(Message):
    """One new row."""

    base_offset: Offset
    position: i64
    size: i32
    max_timestamp: i64


class ObjectsCondemned(Message, key=48, versions=range(1), flexible=0):
    """Unreferenced objects are about to be deleted: no later commit may name them."""

    object_ids: list[i64]
