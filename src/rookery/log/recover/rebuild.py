"""Builds a state from the survey of the store; this module reads nothing.

The snapshot is authoritative as far as its objects still exist. After it, offsets come from merged
objects and segments, which contain them, and from the notes of writers about their earlier objects
and about ended transactions. An object whose offsets are not recorded anywhere is left out and
reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rookery.cluster.state.brokers import Brokers
from rookery.cluster.state.objects import Objects, SegmentName
from rookery.cluster.state.partition import PRODUCER_IDS, BatchPosition, Partition, RowKind
from rookery.cluster.state.sinks import Sinks, SinkState
from rookery.cluster.state.state import FEATURE_LEVEL, State
from rookery.formats.keys import is_stored, object_key
from rookery.formats.manifest import EarlierObject, ManifestExtent
from rookery.log.check.fault import FaultRange
from rookery.log.read.objects import key_of
from rookery.log.recover.catalog import CatalogChanges, restore_topics
from rookery.log.recover.chain import Candidate, choose
from rookery.log.recover.ends import RecordedEnd, find_ends, marker_rows
from rookery.log.recover.survey import SharedObject, StoreSurvey

# Entries, producer ids and leader epochs were issued that have left no trace in the store. None may
# be issued again: a process or a client that still has one would be taken for another.
_ENTRIES_AHEAD: Final = 1_000_000
_PRODUCERS_AHEAD: Final = 1_000_000
_EPOCHS_AHEAD: Final = 1_000

_Key = tuple[bytes, int]
_Candidates = dict[_Key, list[Candidate]]


class UnplacedObject(NamedTuple):
    """An object with batches whose offsets are not recorded anywhere."""

    object_id: int
    key: str
    created_ms: int
    parts: list[FaultRange]
    """Topics and partitions; the offsets are 0 and the number of records."""
    staged_for: str = ""
    """The sink's batch for which it was written, which may never have been committed."""

    @property
    def records(self) -> int:
        """The number of offsets that its batches would take."""
        return sum(part.end_offset for part in self.parts)


@dataclass(slots=True)
class RebuiltState:
    """A rebuilt state, and the findings about it."""

    state: State
    number: int
    """The entry that the state is as of: above every entry seen."""
    catalog: CatalogChanges
    unplaced: list[UnplacedObject] = field(default_factory=list)
    lost: list[FaultRange] = field(default_factory=list)
    """Offsets that were assigned and whose bytes are missing."""
    known_ends: dict[_Key, int] = field(default_factory=dict)
    """The end offset of each partition in the snapshot."""
    fresh: set[tuple[int, int]] = field(default_factory=set)
    """Final rows that the snapshot does not contain: object ids and positions."""
    ends: list[RecordedEnd] = field(default_factory=list)
    """Transactions that ended after the snapshot, as recorded by their brokers."""


def rebuild(survey: StoreSurvey, namespace: str) -> RebuiltState:
    """Build the state; this consumes the survey's snapshot."""
    state = survey.snapshot or State()
    since = state.applied
    known = _known_rows(state, survey, namespace)
    ends = {
        (topic.id, partition.index): partition.next_offset
        for topic in state.topics
        for partition in topic.partitions
    }
    catalog = restore_topics(state, survey)
    assigned = _find_assigned(survey)
    candidates = _candidates(survey, assigned)
    txn_ends = find_ends(survey)
    for more in (known, marker_rows(txn_ends)):
        for key, rows in more.items():
            candidates[key] += rows
    rebuilt = RebuiltState(
        state,
        max(survey.highest, since) + _ENTRIES_AHEAD,
        catalog,
        known_ends=ends,
        ends=txn_ends,
    )
    rebuilt.unplaced = list(_find_unplaced(survey, state, assigned))
    for topic in state.topics:
        for partition in topic.partitions:
            rows = candidates.get((topic.id, partition.index), [])
            chosen = choose(rows, partition.log_start)
            rebuilt.fresh |= _fresh(chosen)
            lost = _fill(partition, chosen, is_blank=survey.snapshot is None)
            rebuilt.lost += [FaultRange(topic.name, partition.index, *span) for span in lost]
    _restore_sinks(state, survey)
    _restore_objects(state, survey)
    _restore_names(state, survey)
    _restore_counters(state, survey, rebuilt.number)
    return rebuilt


# Candidate rows for offsets.


def _known_rows(state: State, survey: StoreSurvey, namespace: str) -> _Candidates:
    """Return the snapshot's rows whose bytes still exist."""
    candidates: _Candidates = defaultdict(list)
    for topic in state.topics:
        for partition in topic.partitions:
            rows = [partition.row(index) for index in range(len(partition.base_offsets))]
            candidates[topic.id, partition.index] = [
                Candidate(*row, is_known=True)
                for row in rows
                if row.is_marker
                or _is_there(state, survey, namespace, row.object_id, row.position, row.size)
            ]
    return candidates


def _is_there(
    state: State, survey: StoreSurvey, namespace: str, object_id: int, position: int, size: int
) -> bool:
    if object_id <= 0:
        return False  # lost before, or with the entry that contained it
    if is_stored(object_id):
        length = survey.sizes.get(key_of(state, namespace, object_id), -1)
    else:
        length = survey.journals.get(object_id, -1)
    return length >= position + size and (object_id, position) not in survey.damaged_rows


def _find_assigned(survey: StoreSurvey) -> dict[int, EarlierObject]:
    """Return the offsets assigned to the batches of each object, as its writer recorded later."""
    return {
        earlier.object_id: earlier
        for shared in survey.objects.values()
        for earlier in shared.manifest.earlier
    }


def _candidates(survey: StoreSurvey, assigned: dict[int, EarlierObject]) -> _Candidates:
    condemned = survey.snapshot.objects.condemned if survey.snapshot is not None else {}
    candidates: _Candidates = defaultdict(list)
    for object_id, shared in survey.objects.items():
        if object_id not in condemned:
            _from_object(candidates, object_id, shared, assigned.get(object_id))
    for object_id, segment in survey.segments.items():
        if object_id in condemned:
            continue
        times = segment.times
        row = Candidate(
            times.header.base_offset, times.footer.last_offset + 1, object_id, 0, times.size,
            times.max_timestamp, int(RowKind.FINAL | RowKind.SEGMENT), is_known=False,
        )  # fmt: skip
        candidates[times.origin.topic_id, times.origin.partition].append(row)
    return candidates


def _from_object(
    candidates: _Candidates, object_id: int, shared: SharedObject, assigned: EarlierObject | None
) -> None:
    """Add the rows of a shared object; final rows contain their offsets, others have noted ones."""
    manifest, position = shared.manifest, shared.begin
    for index, extent in enumerate(manifest.extents):
        base, time_ms, kind = extent.base_offset, extent.max_timestamp, extent.kind
        if base < 0 and assigned is not None and index < len(assigned.base_offsets):
            base, append_time = assigned.base_offsets[index], assigned.append_times[index]
            if append_time >= 0:
                time_ms, kind = append_time, int(RowKind.APPEND_TIME)
            elif time_ms < 0:
                time_ms = manifest.created_ms
        if base >= 0 and extent.topic < len(manifest.topics):
            row = Candidate(
                base, base + extent.records, object_id, position, extent.size, time_ms, kind,
                is_known=False,
            )  # fmt: skip
            candidates[manifest.topics[extent.topic].topic_id, extent.partition].append(row)
        position += extent.size


def _find_unplaced(
    survey: StoreSurvey, state: State, assigned: dict[int, EarlierObject]
) -> Iterator[UnplacedObject]:
    """Find the objects that neither the snapshot nor a later object records."""
    for object_id, shared in sorted(survey.objects.items()):
        manifest = shared.manifest
        sent = [extent for extent in manifest.extents if extent.base_offset < 0]
        is_known = object_id in state.objects.rows or object_id in state.objects.condemned
        if not sent or is_known or object_id in assigned:
            continue
        parts = _count_records(shared, sent)
        if parts:
            key = object_key(object_id)
            yield UnplacedObject(object_id, key, manifest.created_ms, parts, manifest.staged_for)


def _count_records(shared: SharedObject, sent: list[ManifestExtent]) -> list[FaultRange]:
    counts: dict[tuple[str, int], int] = defaultdict(int)
    topics = shared.manifest.topics
    for extent in sent:
        if extent.topic < len(topics):
            counts[topics[extent.topic].name, extent.partition] += extent.records
    return [FaultRange(*key, 0, records) for key, records in sorted(counts.items())]


# The state.


def _fresh(chosen: list[Candidate]) -> set[tuple[int, int]]:
    return {
        (row.object_id, row.position)
        for row in chosen
        if row.kind & RowKind.FINAL and not row.is_known
    }


def _fill(
    partition: Partition, chosen: list[Candidate], *, is_blank: bool
) -> list[tuple[int, int]]:
    """Set the rows of a partition to the chosen ones; return the lost offsets."""
    end = partition.next_offset
    was_lost = _lost_spans(partition)
    for column in partition.columns:
        del column[:]
    partition.size_bytes = 0
    first = chosen[0].base_offset if chosen else end
    if is_blank:
        # Nothing is known about earlier offsets: they may have been deleted on purpose.
        partition.log_start = first
    partition.next_offset = min(first, partition.log_start)
    gaps = []
    for row in chosen:
        gaps += _skip(partition, row.base_offset, row.max_timestamp)
        _append(partition, row)
    gaps += _skip(partition, max(end, partition.log_start), -1)
    return [gap for gap in gaps if not any(a <= gap[0] and gap[1] <= b for a, b in was_lost)]


def _lost_spans(partition: Partition) -> list[tuple[int, int]]:
    rows = (partition.row(index) for index in range(len(partition.base_offsets)))
    return [(row.base_offset, row.end_offset) for row in rows if row.is_lost]


def _skip(partition: Partition, offset: int, time_ms: int) -> list[tuple[int, int]]:
    """Keep offsets whose bytes are lost: readers are led over them."""
    begin = partition.next_offset
    if offset <= begin:
        return []
    last = partition.times[-1] if partition.times else time_ms
    _put(partition, Candidate(begin, offset, 0, 0, 0, last, 0, is_known=False))
    return [(begin, offset)]


def _append(partition: Partition, row: Candidate) -> None:
    if row.is_known or row.kind & (RowKind.FINAL | RowKind.MARKER):
        _put(partition, row)
        return
    # As if it were committed now: adjacent batches become one row.
    place = BatchPosition(row.object_id, row.position, row.size)
    records = row.end_offset - row.base_offset
    is_append_time = bool(row.kind & RowKind.APPEND_TIME)
    partition.append(place, records, row.max_timestamp, is_append_time=is_append_time)


def _put(partition: Partition, row: Candidate) -> None:
    values = (row.base_offset, row.object_id, row.position, row.size, row.max_timestamp, row.kind)
    for column, value in zip(partition.columns, values, strict=True):
        column.append(value)
    partition.size_bytes += row.size
    partition.next_offset = row.end_offset


def _restore_objects(state: State, survey: StoreSurvey) -> None:
    """Recount rows; objects without rows are included, so that they are swept later."""
    old, objects = state.objects, Objects()
    objects.condemned = old.condemned
    objects.retired_names = old.retired_names
    objects.segments = old.segments
    objects.rows = {object_id: 0 for object_id in (*old.rows, *survey.objects) if object_id > 0}
    for topic in state.topics:
        for partition in topic.partitions:
            for object_id in partition.objects:
                if object_id:
                    objects.add_row(object_id)
    for object_id, segment in survey.segments.items():
        # Segments of other topics are not changed: fsck reports them, and an operator decides.
        if segment.times.origin.topic_id in state.topics.by_id:
            key = segment.key
            objects.rows.setdefault(object_id, 0)
            objects.segments[object_id] = SegmentName(
                key.topic, key.partition, key.base_offset, key.generation is None
            )
    state.objects = objects


def _restore_sinks(state: State, survey: StoreSurvey) -> None:
    """Restore each sink to its last recorded position; staged batches must be written again."""
    sinks = Sinks()
    sinks.by_id = state.sinks.by_id
    for shared in survey.objects.values():
        for sink in shared.manifest.sinks:
            known = sinks.by_id.get(sink.sink_id)
            if known is None or known.entry < sink.entry:
                sinks.by_id[sink.sink_id] = SinkState(
                    sink.query_id, sink.batch_id, sink.source_offsets, sink.entry, sink.stamp_ms
                )
    state.sinks = sinks


def _restore_names(state: State, survey: StoreSurvey) -> None:
    """Ensure that no plain name is used a second time."""
    owners = {
        segment.key: segment.times.origin.topic_id
        for segment in survey.segments.values()
        if segment.key.generation is None
    }
    for key in survey.plain_names:
        topic = state.topics.by_name.get(key.topic)
        if topic is None or owners.get(key, topic.id) != topic.id:
            state.objects.retired_names[key.topic] = None
        elif key.partition < len(topic.partitions):
            partition = topic.partitions[key.partition]
            partition.named_to = max(partition.named_to, key.base_offset)


def _restore_counters(state: State, survey: StoreSurvey, number: int) -> None:
    state.applied = number
    state.digest = 0
    state.cluster_id = state.cluster_id or survey.cluster_id
    state.feature_level = state.feature_level or FEATURE_LEVEL
    state.brokers = Brokers()
    seen = [
        extent.producer_id
        for shared in survey.objects.values()
        for extent in shared.manifest.extents
    ]
    # A client may choose any id. Ids beyond the bound were never issued by a broker.
    highest = max((issued for issued in seen if issued < PRODUCER_IDS // 2), default=-1) + 1
    state.next_producer_id = max(state.next_producer_id, highest) + _PRODUCERS_AHEAD


def lead_anew(state: State) -> None:
    """Remove the leader of all partitions; the next leader epoch is above all earlier ones."""
    for topic in state.topics:
        for partition in topic.partitions:
            partition.leader = -1
            highest = max((epoch for epoch, _ in partition.epochs), default=-1)
            partition.leader_epoch = max(partition.leader_epoch, highest) + _EPOCHS_AHEAD
