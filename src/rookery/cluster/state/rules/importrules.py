"""The effects of imports: rows whose offsets were assigned elsewhere.

An imported segment must have been staged, like a rewritten one. It is appended only to the end of
a partition that has no other writers, because offsets are never reused.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from itertools import pairwise
from typing import Final, Protocol

from rookery.cluster.entry import Entry
from rookery.cluster.events import importevents
from rookery.cluster.state import producers
from rookery.cluster.state.objects import Objects
from rookery.cluster.state.outcome import OK, EntryOutcome, Outcome
from rookery.cluster.state.partition import PRODUCER_IDS, Partition, RowKind
from rookery.cluster.state.topics import Topics
from rookery.cluster.state.txns import LAST_EPOCH, Transaction, TransactionOwner, Transactions
from rookery.errors import ErrorCode
from rookery.wire.message import Message

_UNKNOWN: Final = Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_MOVED_ON: Final = Outcome(ErrorCode.OFFSET_OUT_OF_RANGE)
_UNSOUND: Final = Outcome(ErrorCode.INVALID_REQUEST)
_KIND: Final = int(RowKind.FINAL | RowKind.SEGMENT)


class ImportContext(Protocol):
    """The part of the state that imports depend on."""

    topics: Topics
    objects: Objects
    transactions: Transactions
    next_producer_id: int


def _segments_imported(
    known: ImportContext, _entry: Entry, event: importevents.SegmentsImported, done: EntryOutcome
) -> Outcome:
    partition = known.topics.partition(event.topic_id, event.partition)
    if partition is None:
        return _UNKNOWN
    is_blank = not partition.next_offset and not partition.base_offsets
    if event.base_offset != partition.next_offset and not is_blank:
        return Outcome(ErrorCode.OFFSET_OUT_OF_RANGE, partition.next_offset)
    if not _are_sound(known, event):
        return _UNSOUND
    if is_blank:
        partition.log_start = partition.next_offset = event.base_offset
    for segment in event.segments:
        _append(partition, segment)
        known.objects.add_row(segment.object_id)
    done.grown.append((event.topic_id, event.partition))
    return OK


def _are_sound(known: ImportContext, event: importevents.SegmentsImported) -> bool:
    """Whether the segments were staged for this place, are unused, and are contiguous."""
    topic = known.topics.by_id[event.topic_id]
    base = event.base_offset
    seen: set[int] = set()
    for segment in event.segments:
        staged = known.objects.segments.get(segment.object_id)
        is_here = staged is not None and staged[:3] == (topic.name, event.partition, base)
        is_taken = (
            segment.object_id in known.objects.condemned
            or segment.object_id in seen
            or bool(known.objects.rows.get(segment.object_id))
        )
        if not is_here or is_taken or segment.end_offset <= base or segment.size <= 0:
            return False
        seen.add(segment.object_id)
        base = segment.end_offset
    return base >= 0


def _append(partition: Partition, segment: importevents.ImportedSegment) -> None:
    values = (partition.next_offset, segment.object_id, 0, segment.size, segment.max_timestamp)
    for column, value in zip(partition.columns, (*values, _KIND), strict=True):
        column.append(value)
    partition.size_bytes += segment.size
    partition.next_offset = segment.end_offset


def _producers_imported(
    known: ImportContext, _entry: Entry, event: importevents.ProducersImported, _done: EntryOutcome
) -> Outcome:
    partition = known.topics.partition(event.topic_id, event.partition)
    if partition is None:
        return _UNKNOWN
    if partition.next_offset != event.end_offset:
        return _MOVED_ON
    if not all(_is_producer(imported) for imported in event.producers):
        return _UNSOUND
    for producer in event.producers:
        partition.producers[producer.producer_id] = _window(producer)
        if producer.first_offset >= 0:
            partition.ongoing[producer.producer_id] = producer.first_offset
        known.next_producer_id = max(known.next_producer_id, producer.producer_id + 1)
    partition.ongoing = dict(sorted(partition.ongoing.items(), key=lambda item: item[1]))
    _add_aborted(partition, event.aborted)
    return OK


def _is_producer(producer: importevents.ImportedProducer) -> bool:
    return (
        0 <= producer.producer_id < PRODUCER_IDS
        and producer.epoch >= 0
        and len(producer.batches) <= producers.REMEMBERED
        and all(batch.first_sequence >= 0 and batch.records > 0 for batch in producer.batches)
    )


def _window(producer: importevents.ImportedProducer) -> bytes:
    """Pack the state that a partition keeps of a producer."""
    if not producer.batches:
        return producers.close(None, producer.epoch, producer.time_ms)
    window: bytes | None = None
    for batch in producer.batches:
        window = producers.remember(
            window,
            producer.epoch,
            batch.first_sequence,
            batch.records,
            offset=batch.base_offset,
            time_ms=producer.time_ms,
        )
    return window or b""


def _add_aborted(partition: Partition, aborted: list[importevents.ImportedAbort]) -> None:
    """Add transactions that are not known yet, in the order of their markers."""
    last = partition.aborted[-2] if partition.aborted else -1
    rows = array("q", partition.aborted)
    for abort in aborted:
        if abort.last_offset > last:
            rows.extend(
                (abort.producer_id, abort.first_offset, abort.last_offset, abort.stable_offset)
            )
            last = abort.last_offset
    partition.aborted = rows


def _partition_imported(
    known: ImportContext, _entry: Entry, event: importevents.PartitionImported, done: EntryOutcome
) -> Outcome:
    partition = known.topics.partition(event.topic_id, event.partition)
    if partition is None:
        return _UNKNOWN
    is_blank = not partition.next_offset and not partition.base_offsets
    if not is_blank and partition.next_offset != event.end_offset:
        return _MOVED_ON
    if not 0 <= event.log_start <= event.end_offset or not _rise(event.epochs):
        return _UNSOUND
    if is_blank:
        partition.log_start = partition.next_offset = event.end_offset
    if event.log_start > partition.log_start:
        known.objects.free(partition.begin_at(event.log_start))
    partition.cleaned_to = max(partition.cleaned_to, min(event.cleaned_to, event.end_offset))
    partition.append_time = max(partition.append_time, event.append_time)
    _take_epochs(partition, event.epochs)
    known.topics.by_id[event.topic_id].touch()
    done.grown.append((event.topic_id, event.partition))
    return OK


def _rise(epochs: list[importevents.ImportedEpoch]) -> bool:
    return all(epoch.epoch >= 0 and epoch.start_offset >= 0 for epoch in epochs) and all(
        earlier.epoch < later.epoch and earlier.start_offset <= later.start_offset
        for earlier, later in pairwise(epochs)
    )


def _take_epochs(partition: Partition, epochs: list[importevents.ImportedEpoch]) -> None:
    """Adopt the epochs in the imported batches; the current leader gets a later epoch."""
    taken = [(epoch.epoch, epoch.start_offset) for epoch in epochs]
    if partition.epochs[: len(taken)] == taken:
        return  # nothing is new, or it was done before
    partition.epochs = taken
    partition.leader_epoch = max(partition.leader_epoch, epochs[-1].epoch)
    if partition.leader >= 0:
        partition.leader_epoch += 1
        partition.epochs.append((partition.leader_epoch, partition.next_offset))


def _transactional_id_imported(
    known: ImportContext,
    entry: Entry,
    event: importevents.TransactionalIdImported,
    done: EntryOutcome,
) -> Outcome:
    transactions = known.transactions
    if event.transactional_id in transactions.by_id:
        return Outcome(ErrorCode.DUPLICATE_RESOURCE)
    is_sound = 0 <= event.producer_id < PRODUCER_IDS and 0 <= event.producer_epoch <= LAST_EPOCH
    if not is_sound or event.producer_id in transactions.by_producer or event.timeout_ms <= 0:
        return _UNSOUND
    writer = TransactionOwner(event.producer_id, event.producer_epoch)
    transaction = Transaction(event.transactional_id, writer, event.timeout_ms)
    transaction.changed, transaction.changed_ms = done.number, entry.stamp_ms
    transactions.add(transaction)
    known.next_producer_id = max(known.next_producer_id, event.producer_id + 1)
    return OK


HANDLERS: Final[dict[type[Message], Callable[..., Outcome]]] = {
    importevents.SegmentsImported: _segments_imported,
    importevents.ProducersImported: _producers_imported,
    importevents.PartitionImported: _partition_imported,
    importevents.TransactionalIdImported: _transactional_id_imported,
}
