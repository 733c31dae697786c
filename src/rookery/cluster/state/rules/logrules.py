"""The effects of log events: batches become rows, rows are replaced, objects are deleted.

Batches get their offsets here. A batch that its producer has sent before gets the offset of the
first copy, and one of a fenced producer gets none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from rookery.cluster.entry import Entry
from rookery.cluster.events import logevents
from rookery.cluster.state import aborts, producers
from rookery.cluster.state.objects import Objects, SegmentName
from rookery.cluster.state.outcome import OK, AppendOutcome, EntryOutcome, Outcome
from rookery.cluster.state.partition import BatchPosition, Partition, Row
from rookery.cluster.state.rules import txnrules
from rookery.cluster.state.rules.txnends import Moment
from rookery.cluster.state.topics import Topics
from rookery.cluster.state.txns import Transactions
from rookery.errors import ErrorCode
from rookery.records.batches import TRANSACTIONAL
from rookery.wire.message import Message

FORGET_ABORTED: Final = 2
"""The first feature level at which compaction drops aborted transactions that it has passed."""
KEEP_BUSY_PRODUCERS: Final = 2
"""The first feature level at which producers with an open transaction never expire."""

_NONE: Final = ErrorCode.NONE
_LOST: Final = AppendOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1, is_duplicate=False)
_CONDEMNED: Final = AppendOutcome(ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, is_duplicate=False)


class LogContext(Protocol):
    """The parts of the state that batches, rows and objects depend on."""

    topics: Topics
    objects: Objects
    transactions: Transactions
    next_producer_id: int
    feature_level: int


# Batches.


def _commit_batches(
    known: LogContext, entry: Entry, event: logevents.BatchesCommitted, done: EntryOutcome
) -> Outcome:
    object_id = event.object_id or -done.number
    stamp_ms = entry.stamp_ms
    if object_id in known.objects.condemned:
        return Outcome(_NONE, [_CONDEMNED] * len(event.extents))
    return Outcome(
        _NONE, [_append(known, extent, object_id, stamp_ms, done) for extent in event.extents]
    )


def _append(
    known: LogContext, extent: logevents.Extent, object_id: int, stamp_ms: int, done: EntryOutcome
) -> AppendOutcome:
    topic = known.topics.by_id.get(extent.topic_id)
    if topic is None or not 0 <= extent.partition < len(topic.partitions):
        return _LOST
    partition = topic.partitions[extent.partition]
    producer_id = extent.producer_id
    if producer_id >= 0:
        transaction = known.transactions.by_producer.get(producer_id)
        is_transactional = extent.attributes & TRANSACTIONAL
        if is_transactional or transaction is not None:
            error = txnrules.judge(transaction, partition, extent)
            if error is not _NONE:
                return AppendOutcome(error, -1, -1, is_duplicate=False)
        window = partition.producers.get(producer_id)
        verdict = producers.judge(
            window, extent.producer_epoch, extent.base_sequence, extent.records
        )
        if verdict is not producers.NEW:
            return AppendOutcome(verdict.error, verdict.offset, -1, verdict.offset >= 0)
        if is_transactional:
            moment = Moment(done.number, stamp_ms)
            error = txnrules.join(known.transactions, partition, extent, moment)
            if error is not _NONE:
                return AppendOutcome(error, -1, -1, is_duplicate=False)
        partition.producers[producer_id] = producers.remember(
            window,
            extent.producer_epoch,
            extent.base_sequence,
            extent.records,
            offset=partition.next_offset,
            time_ms=stamp_ms,
        )
    append_time = -1
    # A batch without a timestamp gets the time of its commit, because retention needs one.
    time_ms = extent.max_timestamp if extent.max_timestamp >= 0 else stamp_ms
    if topic.is_append_time:
        append_time = time_ms = partition.append_time = max(partition.append_time, stamp_ms)
    base = partition.next_offset
    place = BatchPosition(object_id, extent.position, extent.size)
    if partition.append(place, extent.records, time_ms, is_append_time=topic.is_append_time):
        known.objects.add_row(object_id)
    done.grown.append((extent.topic_id, extent.partition))
    return AppendOutcome(_NONE, base, append_time, False)  # noqa: FBT003 (for every batch: faster)


# Rows and objects.


def _segments_staged(
    known: LogContext, _entry: Entry, event: logevents.SegmentsStaged, _done: EntryOutcome
) -> Outcome:
    return Outcome(_NONE, [_stage(known, staged) for staged in event.segments])


def _stage(known: LogContext, staged: logevents.StagedSegment) -> bool:
    """Name a segment; each plain name is used once, in the order of offsets."""
    topic = known.topics.by_id.get(staged.topic_id)
    partition = known.topics.partition(staged.topic_id, staged.partition)
    if topic is None or partition is None or staged.object_id in known.objects.condemned:
        return False
    is_plain = (
        staged.base_offset > partition.named_to and topic.name not in known.objects.retired_names
    )
    if is_plain:
        partition.named_to = staged.base_offset
    known.objects.stage(
        staged.object_id,
        SegmentName(topic.name, staged.partition, staged.base_offset, is_plain),
    )
    return is_plain


def _replace_rows(
    known: LogContext, entry: Entry, event: logevents.RowsReplaced, done: EntryOutcome
) -> Outcome:
    if event.object_id in known.objects.condemned:
        return Outcome(_NONE, [False] * len(event.ranges))
    return Outcome(
        _NONE,
        [
            not _is_held_off(known, replaced, entry.stamp_ms)
            and _replace(known, event.object_id, replaced, done)
            for replaced in event.ranges
        ],
    )


def _is_held_off(known: LogContext, replaced: logevents.ReplacedRange, now_ms: int) -> bool:
    """Whether the range compacts away records that a pin protects."""
    topic = known.topics.by_id.get(replaced.topic_id)
    held = None if topic is None else topic.held_from(replaced.partition, now_ms)
    # Records at or above `cleaned_to` are unchanged, even if they are in the range.
    return held is not None and replaced.cleaned_to > held


def _replace(
    known: LogContext, object_id: int, replaced: logevents.ReplacedRange, done: EntryOutcome
) -> bool:
    """Replace rows, if the old ones are exactly those that the rewriter read."""
    partition = known.topics.partition(replaced.topic_id, replaced.partition)
    span = (
        partition.span(replaced.base_offset, replaced.end_offset) if partition is not None else None
    )
    if partition is None or span is None or partition.fingerprint(span) != replaced.fingerprint:
        return False
    if not replaced.pieces:
        return False
    ends = [piece.base_offset for piece in replaced.pieces[1:]] + [replaced.end_offset]
    rows = [
        Row(piece.base_offset, end, object_id, piece.position, piece.size,
            piece.max_timestamp, replaced.kind)
        for piece, end in zip(replaced.pieces, ends, strict=True)
    ]  # fmt: skip
    if rows[0].base_offset != replaced.base_offset or not _ascend(rows):
        return False
    for _ in rows:
        known.objects.add_row(object_id)
    known.objects.free(partition.replace(span, rows))
    if replaced.cleaned_to > partition.cleaned_to:
        partition.cleaned_to = replaced.cleaned_to
        if known.feature_level >= FORGET_ABORTED:
            # Compaction has removed all their records, so readers have nothing to skip.
            partition.aborted = aborts.after(partition.aborted, replaced.cleaned_to)
    done.moved.append((replaced.topic_id, replaced.partition))
    return True


def _ascend(rows: list[Row]) -> bool:
    """Whether every row begins below its end."""
    return all(row.base_offset < row.end_offset for row in rows)


def _objects_condemned(
    known: LogContext, _entry: Entry, event: logevents.ObjectsCondemned, done: EntryOutcome
) -> Outcome:
    return Outcome(_NONE, known.objects.condemn(event.object_ids, done.number))


def _rows_lost(
    known: LogContext, _entry: Entry, event: logevents.RowsLost, _done: EntryOutcome
) -> Outcome:
    partition = known.topics.partition(event.topic_id, event.partition)
    if partition is None:
        return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    known.objects.free([partition.lose(base) for base in event.base_offsets])
    return OK


def _objects_dropped(
    known: LogContext, _entry: Entry, event: logevents.ObjectsDropped, done: EntryOutcome
) -> Outcome:
    kept = known.objects.drop(event.object_ids)
    done.dropped.extend(object_id for object_id in event.object_ids if object_id not in kept)
    return Outcome(ErrorCode.NONE, kept)


# Producers.


def _ids_allotted(
    known: LogContext, _entry: Entry, event: logevents.ProducerIdsAllotted, _done: EntryOutcome
) -> Outcome:
    first = known.next_producer_id
    known.next_producer_id += event.count
    return Outcome(ErrorCode.NONE, first)


def _producers_expired(
    known: LogContext, _entry: Entry, event: logevents.ProducersExpired, _done: EntryOutcome
) -> Outcome:
    partition = known.topics.partition(event.topic_id, event.partition)
    if partition is not None:
        for idle in event.producers:
            if _is_idle(known, partition, idle):
                del partition.producers[idle.producer_id]
    return OK


def _is_idle(known: LogContext, partition: Partition, idle: logevents.IdleProducer) -> bool:
    """Whether a producer has been inactive since it was found idle."""
    window = partition.producers.get(idle.producer_id)
    if window is None:
        return False
    producer = producers.describe(window)
    if producer.last_sequence != idle.last_sequence:
        return False
    if known.feature_level < KEEP_BUSY_PRODUCERS:
        return True
    has_written = idle.time_ms not in (-1, producer.time_ms)
    return not has_written and idle.producer_id not in partition.ongoing


HANDLERS: Final[dict[type[Message], Callable[..., Outcome]]] = {
    logevents.BatchesCommitted: _commit_batches,
    logevents.RowsLost: _rows_lost,
    logevents.SegmentsStaged: _segments_staged,
    logevents.RowsReplaced: _replace_rows,
    logevents.ObjectsCondemned: _objects_condemned,
    logevents.ObjectsDropped: _objects_dropped,
    logevents.ProducerIdsAllotted: _ids_allotted,
    logevents.ProducersExpired: _producers_expired,
}
