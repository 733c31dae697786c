"""Plans which rows to rewrite next, from the state alone, without reading or writing a byte.

    rows as producers sent them ──► merged objects ──► larger merged objects
              │                            │
              └────────────────────────────┴──► segments, one partition each

Merged objects hold rows of all partitions, sorted by partition. A trickle into ten thousand
partitions therefore costs a few requests for each MiB, not a few for each partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, TypeAlias

from rookery.clock import SystemClock
from rookery.cluster.state.partition import Partition, RowKind
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.formats.keys import is_stored
from rookery.log.maintain.census import (
    Census,
    Damage,
    Tally,
    below,
    count_rows,
    find_decided_end,
    find_fitting_end,
    find_segment_end,
    fits_segment,
    loose_runs,
    may_grow,
)
from rookery.log.maintain.quarantine import Quarantine
from rookery.log.maintain.rewritejob import (
    MergeJob,
    RewriteJob,
    RowRange,
    SegmentJob,
    range_of,
)
from rookery.log.settings import RewriteSettings

_FINAL: Final = int(RowKind.FINAL)
# A partition with 1/n of a segment is excluded from early merges: it gets a segment soon.
_BUSY_PART: Final = 4
# This number of merged objects of similar size become one of about that many times the size.
_FAN: Final = 8
_FAN_BITS: Final = 3
_SMALLEST_TIER: Final = 64 * 1024


class Lag(NamedTuple):
    """The overdue backlog: its size, and how long the oldest row has waited."""

    bytes: int
    age_ms: int


class _LooseRows(NamedTuple):
    """Consecutive rows that are in no segment and in no job yet."""

    topic: Topic
    partition: Partition
    rows: range
    is_busy: bool


_Draft: TypeAlias = tuple[list[SegmentJob], list[_LooseRows], dict[int, Tally]]


class _Bounds(NamedTuple):
    """The bounds of one merge."""

    bytes: int
    rows: int
    with_busy: bool
    """Whether to include partitions that will have a segment soon."""

    def count_bytes(self, tally: Tally) -> int:
        """Return how many bytes of an object are merged."""
        return tally.bytes if self.with_busy else tally.bytes - tally.busy


class RewritePlanner:
    """Makes plans, and remembers between plans how long data has waited."""

    def __init__(
        self,
        settings: RewriteSettings,
        quarantine: Quarantine | None = None,
        segment_ms: Callable[[Topic], int] | None = None,
    ) -> None:
        """Start without any history.

        Args:
            settings: sizes and ages.
            quarantine: partitions and rows that are excluded from plans.
            segment_ms: the age at which a topic's rows become a segment, even if there are few;
                None means no such age.
        """
        self._settings = settings
        self._segment_ms = segment_ms
        self._wall_ms = -1
        self._quarantine = Quarantine(SystemClock()) if quarantine is None else quarantine
        self._census = Census()
        self._lag = Lag(0, 0)

    def plan(
        self,
        state: State,
        now_ms: int,
        *,
        before_entry: int = 0,
        damage: Damage = (),
        wall_ms: int = -1,
    ) -> list[MergeJob | SegmentJob]:
        """Return the jobs to do now, merges first; no two jobs include the same row.

        Args:
            state: the current state.
            now_ms: a monotonic clock.
            before_entry: payloads of entries up to this one are moved out of their entries in any
                case.
            damage: rows to leave alone.
            wall_ms: the wall-clock time, to compare with the timestamps of records.
        """
        self._wall_ms = wall_ms
        segments: list[SegmentJob] = []
        loose: list[_LooseRows] = []
        tallies: dict[int, Tally] = {}
        for topic in state.topics:
            for partition in topic.partitions:
                key = "partition", topic.id, partition.index
                if self._quarantine.holds(key):
                    continue
                try:
                    self._look(topic, partition, now_ms, damage, (segments, loose, tallies))
                except Exception as error:  # noqa: BLE001 (it must not stop the others)
                    subject = f"rewrite of topic {topic.name} partition {partition.index}"
                    self._quarantine.add(key, subject, error)
        self._census.observe(tallies, now_ms)
        flushed = {object_id: tally for object_id, tally in tallies.items() if not tally.is_final}
        merged = {object_id: tally for object_id, tally in tallies.items() if tally.is_final}
        self._note_lag(flushed, segments, now_ms)
        merges = (
            self._flushes(flushed, loose, now_ms, before_entry),
            self._again(merged, loose, now_ms),
        )
        return [*(MergeJob(tuple(ranges)) for ranges in merges if ranges), *segments]

    def _look(
        self, topic: Topic, partition: Partition, now_ms: int, damage: Damage, plan: _Draft
    ) -> None:
        """Add the jobs for a partition to the plan."""
        segments, loose, tallies = plan
        for run in loose_runs(partition, damage):
            jobs, rest = self._cut(topic, partition, run, now_ms)
            segments += jobs
            if rest:
                loose.append(rest)
                count_rows(tallies, partition, rest.rows, is_busy=rest.is_busy)

    def lag(self) -> Lag:
        """Return the backlog at the time of the last plan."""
        return self._lag

    def adopt(self, object_id: int, inputs: Collection[int], now_ms: int) -> None:
        """Record a new object: its data has waited since it was in the input objects."""
        self._census.adopt(object_id, inputs, now_ms)

    # Segments.

    def _cut(
        self, topic: Topic, partition: Partition, run: range, now_ms: int
    ) -> tuple[list[SegmentJob], _LooseRows | None]:
        """Cut segments off the beginning of a run; return them and the rest of the run."""
        settings, sizes = self._settings, partition.sizes
        stop = min(run.stop - may_grow(partition, run.stop - 1), find_decided_end(partition))
        left = sum(sizes[run.start : stop])
        jobs: list[SegmentJob] = []
        first = run.start
        if self._quarantine.holds(("segment", topic.id, partition.index)):
            stop = first
        # A row that is too large for a segment is split when it is merged.
        while first < stop and fits_segment(partition, first):
            if left < settings.segment_bytes:
                waiting = self._waiting_ms(partition, first, now_ms)
                if not self._is_old(topic, partition.times[first], left, waiting):
                    break
            most = min(stop, first + settings.merge_rows)
            after = find_segment_end(partition, first, most, settings.segment_bytes)
            taken = range_of(topic, partition, range(first, after))
            jobs.append(SegmentJob(taken))
            left -= taken.size
            first = after
        if first == run.stop:
            return jobs, None
        is_busy = left >= settings.segment_bytes // _BUSY_PART
        return jobs, _LooseRows(topic, partition, range(first, run.stop), is_busy)

    def _is_old(self, topic: Topic, time_ms: int, size: int, waiting_ms: int) -> bool:
        """Whether rows have waited long enough for a small segment.

        Rows below the minimum size wait until they are as old as the topic's segment.ms. Their age
        is the larger of the age of their records and the time since they were first seen here. The
        age of the records alone would make a segment of every flush while old records are loaded.
        """
        if waiting_ms < self._settings.segment_age_ms:
            return False
        if size >= self._settings.segment_min_bytes:
            return True
        if self._segment_ms is None:
            return False
        return max(waiting_ms, self._wall_ms - time_ms) >= self._segment_ms(topic)

    def _waiting_ms(self, partition: Partition, first: int, now_ms: int) -> int:
        """Return how long rows have waited for a segment; -1 if they must be merged first."""
        while not partition.objects[first]:
            first += 1  # it has no object: it is as old as the row that follows
            if first == len(partition.objects):
                return -1
        if not partition.kinds[first] & _FINAL:
            return -1
        return self._census.waiting_ms(partition.objects[first], now_ms)

    # Merges.

    def _flushes(
        self, flushed: dict[int, Tally], loose: list[_LooseRows], now_ms: int, before_entry: int
    ) -> list[RowRange]:
        """Choose rows as producers sent them, oldest first."""
        settings, census = self._settings, self._census
        waits = {object_id: census.unmoved_ms(object_id, now_ms) for object_id in flushed}
        forced = [object_id for object_id in flushed if -before_entry <= object_id < 0]
        is_due = bool(forced) or max(waits.values(), default=-1) >= settings.merge_age_ms
        early = sum(tally.bytes - tally.busy for tally in flushed.values())
        if not is_due and early < settings.merge_bytes:
            return []
        # Use one object for all if they fit. Otherwise, if some payloads must leave their entries,
        # merge only those.
        fits = sum(tally.bytes for tally in flushed.values()) <= settings.merge_bytes
        order = sorted(
            flushed if fits or not forced else forced,
            key=lambda object_id: (-waits[object_id], abs(object_id)),
        )
        job = _Bounds(settings.merge_bytes, settings.merge_rows, with_busy=is_due)
        limits = _limits(job, flushed, order)
        for object_id, tally in flushed.items():
            is_written = object_id > 0 and not is_stored(object_id)
            if is_written and census.quiet_ms(object_id, now_ms) < settings.merge_age_ms:
                # The last row of a journal may still grow, which would void its replacement.
                limits[object_id] = min(limits.get(object_id, 0), tally.top)
        return _collect_ranges(job, limits, loose)

    def _again(
        self, merged: dict[int, Tally], loose: list[_LooseRows], now_ms: int
    ) -> list[RowRange]:
        """Choose merged objects to merge again: sparse ones, or many of similar size."""
        settings = self._settings
        sparse = [
            object_id
            for object_id, tally in merged.items()
            if self._is_sparse(object_id, tally, now_ms)
        ]
        dead = sum(self._census.peak(object_id) - merged[object_id].bytes for object_id in sparse)
        is_due = (
            len(sparse) >= _FAN
            or dead >= settings.merge_bytes // 4
            or any(self._is_aged(object_id, now_ms) for object_id in sparse)
        )
        chosen = sparse if is_due else self._like_sized(merged)
        if not chosen:
            return []
        order = sorted(chosen)
        # At least two: a single object would be copied for nothing, and again the next time.
        rows = max(settings.merge_rows, sum(merged[object_id].rows for object_id in order[:2]))
        job = _Bounds(settings.merge_bytes, rows, with_busy=True)
        return _collect_ranges(job, _whole(job, merged, order), loose)

    def _is_sparse(self, object_id: int, tally: Tally, now_ms: int) -> bool:
        # A process that started later has not seen rows die. Then the reach of the object shows it.
        whole = tally.end if self._is_aged(object_id, now_ms) else self._census.peak(object_id)
        return tally.bytes * 2 < whole

    def _is_aged(self, object_id: int, now_ms: int) -> bool:
        return self._census.age_ms(object_id, now_ms) >= self._settings.max_age_ms

    def _like_sized(self, merged: dict[int, Tally]) -> list[int]:
        """Find the smallest size class that has enough objects to make a larger one."""
        tiers: dict[int, list[int]] = {}
        for object_id, tally in merged.items():
            if tally.bytes < self._settings.merge_bytes // 2:
                tiers.setdefault(_tier(tally.bytes), []).append(object_id)
        return next((tiers[tier] for tier in sorted(tiers) if len(tiers[tier]) >= _FAN), [])

    def _note_lag(
        self, flushed: dict[int, Tally], segments: Collection[RewriteJob], now_ms: int
    ) -> None:
        waits = {object_id: self._census.unmoved_ms(object_id, now_ms) for object_id in flushed}
        late = [
            object_id for object_id, wait in waits.items() if wait >= self._settings.merge_age_ms
        ]
        size = sum(flushed[object_id].bytes for object_id in late) + sum(
            job.size for job in segments
        )
        self._lag = Lag(size, max(waits.values(), default=0))


def _limits(job: _Bounds, tallies: Mapping[int, Tally], order: list[int]) -> dict[int, int]:
    """Return for each object the position before which rows are taken; the last may be cut."""
    left, rows = job.bytes, job.rows
    limits: dict[int, int] = {}
    for object_id in order:
        tally = tallies[object_id]
        size = job.count_bytes(tally)
        if not size:
            continue
        reach = tally.end - tally.low
        limits[object_id] = tally.low + min(reach, reach * left // size, reach * rows // tally.rows)
        left, rows = left - size, rows - tally.rows
        if left <= 0 or rows <= 0:
            break
    return limits


def _whole(job: _Bounds, tallies: Mapping[int, Tally], order: list[int]) -> dict[int, int]:
    """Return the same limits, but take every object whole, except possibly the first."""
    taken, left, rows = 0, job.bytes, job.rows
    for object_id in order:
        left -= tallies[object_id].bytes
        rows -= tallies[object_id].rows
        if taken and (left < 0 or rows < 0):
            break
        taken += 1
    return _limits(job, tallies, order[:taken])


def _collect_ranges(
    job: _Bounds, limits: Mapping[int, int], loose: list[_LooseRows]
) -> list[RowRange]:
    """Collect the rows below the limits as whole ranges, sorted by partition."""
    ranges: list[RowRange] = []
    left, rows = job.bytes, job.rows
    for loose_rows in loose:
        if loose_rows.is_busy and not job.with_busy:
            continue
        for span in below(loose_rows.partition, loose_rows.rows, limits):
            stop = find_fitting_end(loose_rows.partition, span, left, rows, is_first=not ranges)
            if stop == span.start:
                return ranges
            ranges.append(range_of(loose_rows.topic, loose_rows.partition, range(span.start, stop)))
            left -= ranges[-1].size
            rows -= stop - span.start
    return ranges


def plan_closing(topic: Topic, partition: Partition, settings: RewriteSettings) -> list[SegmentJob]:
    """Plan segments of all rows of a partition that can be in one now, of any size and age."""
    jobs = []
    for run in loose_runs(partition):
        first, stop = run.start, min(run.stop, find_decided_end(partition))
        while first < stop and fits_segment(partition, first):
            most = min(stop, first + settings.merge_rows)
            after = find_segment_end(partition, first, most, settings.segment_bytes)
            jobs.append(SegmentJob(range_of(topic, partition, range(first, after))))
            first = after
    return jobs


def _tier(size: int) -> int:
    return (size // _SMALLEST_TIER).bit_length() // _FAN_BITS
