"""The effects of sink events: a batch is committed atomically and exactly once.

A staged object is held as if it contained a row, so that garbage collection keeps it. The hold
ends when its batch is committed, aborted or overdue; in the last two cases the object is condemned
immediately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from rookery.cluster.entry import MAX_EVENTS, Entry
from rookery.cluster.events import sinkevents
from rookery.cluster.state.objects import Objects
from rookery.cluster.state.outcome import OK, EntryOutcome, Outcome
from rookery.cluster.state.partition import BatchPosition, Partition
from rookery.cluster.state.sinks import RUN, SinkBatch, Sinks, SinkState, StagedObject
from rookery.cluster.state.topics import Topic, Topics
from rookery.errors import ErrorCode
from rookery.wire.message import Message

MAX_STAGED_MS: Final = 7 * 86_400_000
"""Objects staged for this long without a commit are dropped: their writer must be dead."""
MAX_STAGED_RUNS: Final = 1_000_000
"""The limit for staged runs in a cluster: every replica keeps them in memory."""
MAX_SINKS: Final = 4096
"""The maximum number of stored sinks; `SinkForgotten` frees a slot."""
MAX_ID: Final = 255
"""The maximum length of a sink's or a query's id in characters."""
MAX_SOURCE_OFFSETS: Final = 128 * 1024
"""The maximum size of a batch's source offsets in bytes, as UTF-8."""
MAX_OBJECTS: Final = 20_000
"""The maximum number of objects of one commit, so that it fits one entry."""


class SinkRange(NamedTuple):
    """The offsets that one partition got in a commit."""

    topic_id: bytes
    partition: int
    base_offset: int
    end_offset: int
    append_time_ms: int  # -1 where writers set the time


class SinkOutcome(NamedTuple):
    """The outcome of a commit."""

    is_repeated: bool
    """Whether the sink already had this batch, so that nothing was done."""
    ranges: tuple[SinkRange, ...]


_REPEATED: Final = Outcome(ErrorCode.NONE, SinkOutcome(True, ()))  # noqa: FBT003


class SinkContext(Protocol):
    """The part of the state that sinks depend on."""

    topics: Topics
    objects: Objects
    sinks: Sinks


def _part_staged(
    known: SinkContext, entry: Entry, event: sinkevents.SinkPartStaged, done: EntryOutcome
) -> Outcome:
    sinks, objects = known.sinks, known.objects
    _let_go(known, sinks.find_overdue(entry.stamp_ms), done.number)
    batch = SinkBatch(event.sink_id, event.query_id, event.batch_id)
    if not _is_sound(event):
        return Outcome(ErrorCode.INVALID_REQUEST)
    if event.object_id in objects.condemned:
        return Outcome(ErrorCode.KAFKA_STORAGE_ERROR)
    if _is_repeated(sinks.by_id.get(event.sink_id), batch):
        return Outcome(ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    if any(known.topics.partition(run.topic_id, run.partition) is None for run in event.runs):
        return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if sinks.staged_bytes + len(event.runs) * RUN.size > MAX_STAGED_RUNS * RUN.size:
        return Outcome(ErrorCode.POLICY_VIOLATION)
    return _stage(known, event, batch, entry.stamp_ms + MAX_STAGED_MS)


def _stage(
    known: SinkContext, event: sinkevents.SinkPartStaged, batch: SinkBatch, until_ms: int
) -> Outcome:
    """Add the next part to its object, or the first part to a new object."""
    sinks = known.sinks
    staged = sinks.staged.get(event.object_id)
    if staged is None:
        if event.part or known.objects.rows.get(event.object_id):
            return Outcome(ErrorCode.INVALID_REQUEST)
        staged = sinks.staged[event.object_id] = StagedObject(batch, event.parts, until_ms)
        known.objects.add_row(event.object_id)
    elif staged.batch != batch or (event.part, event.parts) != (staged.staged, staged.parts):
        return Outcome(ErrorCode.INVALID_REQUEST)
    sinks.staged_bytes -= len(staged.packed)
    staged.add(event)
    sinks.staged_bytes += len(staged.packed)
    return OK


def _is_sound(event: sinkevents.SinkPartStaged) -> bool:
    """Whether a part is within its limits and can become rows."""
    return (
        len(event.sink_id) <= MAX_ID
        and len(event.query_id) <= MAX_ID
        and event.batch_id >= 0
        and event.object_id > 0
        and 0 <= event.part < event.parts
        and event.position >= 0
        and 0 < len(event.runs) <= MAX_EVENTS
        and all(run.size > 0 and run.records > 0 for run in event.runs)
    )


def _commit_sink(
    known: SinkContext, entry: Entry, event: sinkevents.SinkCommitted, done: EntryOutcome
) -> Outcome:
    batch = SinkBatch(event.sink_id, event.query_id, event.batch_id)
    last = known.sinks.by_id.get(event.sink_id)
    if _is_repeated(last, batch):
        return _REPEATED
    error = _refusal(known, event, last) or _unready(known, event, batch)
    if error:
        return error
    ranges = _append_all(known, event.object_ids, entry.stamp_ms)
    done.grown.extend((written.topic_id, written.partition) for written in ranges)
    if event.sink_id:
        known.sinks.by_id[event.sink_id] = SinkState(
            event.query_id, event.batch_id, event.source_offsets, done.number, entry.stamp_ms
        )
    stale = {*known.sinks.find_superseded(batch), *known.sinks.find_overdue(entry.stamp_ms)}
    _let_go(known, sorted(stale), done.number)
    return Outcome(ErrorCode.NONE, SinkOutcome(False, ranges))  # noqa: FBT003


def _is_repeated(last: SinkState | None, batch: SinkBatch) -> bool:
    return last is not None and (last.query_id, last.batch_id) == batch[1:]


def _refusal(
    known: SinkContext, event: sinkevents.SinkCommitted, last: SinkState | None
) -> Outcome | None:
    """Return why a batch cannot be the sink's next."""
    size = len(event.source_offsets.encode())
    too_long = size > MAX_SOURCE_OFFSETS or len(event.object_ids) > MAX_OBJECTS
    if too_long or max(len(event.sink_id), len(event.query_id)) > MAX_ID or event.batch_id < 0:
        return Outcome(ErrorCode.INVALID_REQUEST)
    if last is None:
        is_full = bool(event.sink_id) and len(known.sinks.by_id) >= MAX_SINKS
        return Outcome(ErrorCode.POLICY_VIOLATION) if is_full else None
    if event.takes_over:
        return None
    if last.query_id != event.query_id:
        return Outcome(ErrorCode.PRODUCER_FENCED, (last.query_id, last.batch_id))
    if event.batch_id < last.batch_id:
        return Outcome(ErrorCode.DUPLICATE_SEQUENCE_NUMBER, (last.query_id, last.batch_id))
    return None


def _unready(
    known: SinkContext, event: sinkevents.SinkCommitted, batch: SinkBatch
) -> Outcome | None:
    """Return an error if an object is not fully staged for this batch or a topic was deleted."""
    if len(set(event.object_ids)) != len(event.object_ids):
        return Outcome(ErrorCode.INVALID_REQUEST)
    for object_id in event.object_ids:
        staged = known.sinks.staged.get(object_id)
        if staged is None or staged.batch != batch or not staged.is_whole:
            return Outcome(ErrorCode.INVALID_TXN_STATE, object_id)
        for topic_id, partition, *_ in staged.runs():
            if known.topics.partition(topic_id, partition) is None:
                return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, object_id)
    return None


class _GrowingPartition(NamedTuple):
    """A partition that a commit writes to."""

    topic: Topic
    partition: Partition
    base_offset: int
    time_ms: int
    """The time of all its rows; -1 if writers set it."""


def _append_all(
    known: SinkContext, object_ids: Iterable[int], stamp_ms: int
) -> tuple[SinkRange, ...]:
    """Convert all runs of these objects to rows, in order."""
    grown: dict[tuple[bytes, int], _GrowingPartition] = {}
    for object_id in object_ids:
        for topic_id, index, position, size, records, time_ms in known.sinks.take(object_id).runs():
            growing = grown.get((topic_id, index))
            if growing is None:
                growing = grown[topic_id, index] = _begin(known, topic_id, index, stamp_ms)
            is_append_time = growing.time_ms >= 0
            row_time = growing.time_ms if is_append_time else time_ms if time_ms >= 0 else stamp_ms
            place = BatchPosition(object_id, position, size)
            if growing.partition.append(place, records, row_time, is_append_time=is_append_time):
                known.objects.add_row(object_id)
        known.objects.free([object_id])  # rows hold it from here on
    return tuple(
        SinkRange(growing.topic.id, growing.partition.index, growing.base_offset,
                  growing.partition.next_offset, growing.time_ms)
        for growing in grown.values()
    )  # fmt: skip


def _begin(known: SinkContext, topic_id: bytes, index: int, stamp_ms: int) -> _GrowingPartition:
    topic = known.topics.by_id[topic_id]
    partition = topic.partitions[index]
    time_ms = -1
    if topic.is_append_time:
        time_ms = partition.append_time = max(partition.append_time, stamp_ms)
    return _GrowingPartition(topic, partition, partition.next_offset, time_ms)


def _abort_sink(
    known: SinkContext, _entry: Entry, event: sinkevents.SinkAborted, done: EntryOutcome
) -> Outcome:
    return Outcome(ErrorCode.NONE, _let_go(known, event.object_ids, done.number))


def _forget_sink(
    known: SinkContext, _entry: Entry, event: sinkevents.SinkForgotten, _done: EntryOutcome
) -> Outcome:
    if known.sinks.by_id.pop(event.sink_id, None) is None:
        return Outcome(ErrorCode.RESOURCE_NOT_FOUND)
    return OK


def _let_go(known: SinkContext, object_ids: Iterable[int], number: int) -> list[int]:
    """Release staged objects, and condemn those without rows; return the condemned."""
    chosen = list(object_ids)
    for object_id in chosen:
        if object_id in known.sinks.staged:
            known.sinks.take(object_id)
            known.objects.free([object_id])
    return known.objects.condemn(chosen, number)


HANDLERS: Final[dict[type[Message], Callable[..., Outcome]]] = {
    sinkevents.SinkPartStaged: _part_staged,
    sinkevents.SinkCommitted: _commit_sink,
    sinkevents.SinkAborted: _abort_sink,
    sinkevents.SinkForgotten: _forget_sink,
}
