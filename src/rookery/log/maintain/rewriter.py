"""Rewrites batches into better objects: small flushes into merged objects, then segments.

    plan ──► read, check, stamp ──► write a new object ──► Replaced ──► the rows point to it
                                                              └─ void: rows have moved; condemn

The new object is complete and durable before an event references it. Until then the old rows are
valid. A crash at any point leaves at worst an object that no row references. Nothing is deleted
here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from rookery import metrics
from rookery.clock import Clock
from rookery.cluster.appender import IncarnationFenced
from rookery.cluster.events.logevents import (
    ReplacedRange,
    RowsReplaced,
)
from rookery.cluster.state.topics import Topic
from rookery.errors import Error, Unavailable
from rookery.formats.keys import object_key
from rookery.log.maintain.newobjects import (
    CapturedRange,
    Proposer,
    Publisher,
    capture,
    merge,
    segment,
)
from rookery.log.maintain.plan import Lag, RewritePlanner
from rookery.log.maintain.quarantine import Key, Quarantine
from rookery.log.maintain.refine import Read, RefinedRow, refine
from rookery.log.maintain.rewritejob import MergeJob, RowRange, SegmentJob, divide_merge
from rookery.log.settings import RewriteSettings
from rookery.store.port import Store

log = logging.getLogger(__name__)

# Bounds of one event: applying more in one step would delay clients.
_EVENT_RANGES: Final = 500
_EVENT_PIECES: Final = 4000
# The number of failures of one job after which it is not divided further.
_FAILURES: Final = 100

REWRITTEN_BYTES: Final = metrics.counters(
    "rookery_rewriter_bytes_total", "Bytes that were rewritten, by kind of job.", ("kind",)
)
VOID_RANGES: Final = metrics.counter(
    "rookery_rewriter_void_ranges_total", "Rewritten ranges that had changed meanwhile."
)
DAMAGED_ROWS: Final = metrics.counter(
    "rookery_rewriter_damaged_rows_total",
    "Rows found damaged or missing, and left as they are; run rookery fsck.",
)


@dataclass(kw_only=True, slots=True)
class Rewriter:
    """Plans jobs and runs them one after the other."""

    name: ClassVar[str] = "merges and segments"
    replica: Proposer
    read: Read
    """Reads journals, objects and payloads of entries."""
    store: Store
    clock: Clock
    next_id: Callable[[], int]
    """Returns the id of a new object in the store, of this process's incarnation."""
    namespace: str = "default"
    """The prefix of segment keys."""
    settings: RewriteSettings = field(default_factory=RewriteSettings)
    segment_ms: Callable[[Topic], int] | None = None
    """Returns a topic's effective segment.ms."""
    damage: set[tuple[int, int]] = field(default_factory=set)
    """Object ids and positions of rows that could not be read and are left alone."""
    quarantine: Quarantine = field(init=False)
    """Rows and partitions that cannot be rewritten, including damaged ones."""
    _planner: RewritePlanner = field(init=False)
    _publisher: Publisher = field(init=False)

    def __post_init__(self) -> None:
        """Create the planner and the publisher."""
        self.quarantine = Quarantine(self.clock)
        self._planner = RewritePlanner(self.settings, self.quarantine, self.segment_ms)
        self._publisher = Publisher(
            replica=self.replica,
            store=self.store,
            clock=self.clock,
            next_id=self.next_id,
            namespace=self.namespace,
        )

    def lag(self) -> Lag:
        """Return the overdue backlog."""
        return self._planner.lag()

    async def run(self, before_entry: int = 0) -> int:
        """Do the pending work and return the number of bytes rewritten.

        Payloads of entries up to `before_entry` are all moved out of their entries, unless damaged.

        Raises:
            Unavailable: the store or the cluster log cannot be reached.
            IncarnationFenced: the cluster has expired this process.
        """
        total = 0
        while total < self.settings.round_bytes:
            await self.replica.barrier()
            await self._publisher.condemn_orphans()
            self._forget_damage()
            jobs = self._planner.plan(
                self.replica.state,
                self.clock.monotonic_ms(),
                before_entry=before_entry,
                damage=self._unusable(),
                wall_ms=self.clock.now_ms(),
            )
            done = await self._rewrite_some(jobs, self.settings.round_bytes - total)
            if not done:
                break  # there is nothing to do, or nothing that can be done now
            total += done
        return total

    async def _rewrite_some(self, jobs: Iterable[MergeJob | SegmentJob], limit: int) -> int:
        """Run jobs up to a number of bytes: after a pause there may be hours of work.

        Every plan includes both kinds of job. Otherwise a busy topic, which always has another
        segment to build, would prevent records of a quiet topic from being moved.
        """
        done = 0
        for job in jobs:
            done += await self._attempt(job)
            if done >= limit and isinstance(job, SegmentJob):
                break
        return done

    async def _attempt(self, job: MergeJob | SegmentJob) -> int:
        """Run a job; a merge that fails is divided until the faulty row is isolated."""
        if isinstance(job, SegmentJob) and self.quarantine.holds(("segment", *job.range.owner)):
            return 0
        done, failures = 0, 0
        waiting = [job]
        while waiting:
            part = waiting.pop()
            try:
                done += await self.rewrite(part)
            except (IncarnationFenced, Unavailable):
                raise
            except Exception as error:
                failures += 1
                if failures == _FAILURES:
                    raise  # the fault is not in the rows
                waiting += self._divide(part, error)
        return done

    def _divide(self, job: MergeJob | SegmentJob, error: Exception) -> list[MergeJob | SegmentJob]:
        """Return the halves of a failed job; a job that cannot be divided is quarantined."""
        if isinstance(job, SegmentJob):
            # Its rows can still be merged.
            what = f"segment of {self._text(job.range)}"
            self.quarantine.add(("segment", *job.range.owner), what, error)
            return []
        halves = divide_merge(self.replica.state, job)
        if not halves:
            [planned] = job.ranges
            self.quarantine.add(self._row_case(planned), f"rewrite of {self._text(planned)}", error)
        return [*halves]

    def _release(self, job: MergeJob | SegmentJob, sources: list[CapturedRange]) -> None:
        """Release the rewritten rows and partitions from quarantine."""
        if not len(self.quarantine):
            return
        for source in sources:
            self.quarantine.release(("partition", *source.range.owner))
            for row in source.rows:
                self.quarantine.release(("row", row.row.object_id, row.row.position))
        if isinstance(job, SegmentJob):
            self.quarantine.release(("segment", *job.range.owner))

    def _row_case(self, planned: RowRange) -> Key:
        """Return the key of a row, or of its partition if the row has no object."""
        partition = self.replica.state.topics.partition(*planned.owner)
        span = partition.span(planned.base_offset, planned.end_offset) if partition else None
        row = partition.row(span.start) if partition and span else None
        if row is None or not row.object_id:
            return "partition", *planned.owner
        return "row", row.object_id, row.position

    def _text(self, planned: RowRange) -> str:
        topic = self.replica.state.topics.by_id.get(planned.topic_id)
        name = topic.name if topic else planned.topic_id.hex()
        last = planned.end_offset - 1
        return f"topic {name} partition {planned.partition} offsets {planned.base_offset} to {last}"

    def _unusable(self) -> set[tuple[int, int]]:
        """Return the positions of rows to leave alone for now."""
        return self.damage.union((key[0], key[1]) for key in self.quarantine.list_held("row"))

    async def rewrite(self, job: MergeJob | SegmentJob) -> int:
        """Run one job; return the number of bytes that were moved."""
        if isinstance(job, MergeJob):
            done = await self._merge(job)
        else:
            done = await self._segment(job)
        REWRITTEN_BYTES.labels(job.kind).inc(done)
        return done

    async def _merge(self, job: MergeJob) -> int:
        sources = await self._sources(job.ranges)
        if not sources:
            return 0
        birth = self._publisher.birth()
        made = merge(birth, sources, self.settings.row_bytes)
        self._publisher.doubt(birth.object_id)
        await self.store.create(object_key(birth.object_id), made.parts)
        done = await self._replace(birth.object_id, made.ranges, sources)
        self._release(job, sources)
        return done

    async def _segment(self, job: SegmentJob) -> int:
        sources = await self._sources([job.range])
        if not sources:
            return 0
        birth = self._publisher.birth()
        files, made = segment(birth, sources[0], self.namespace, self.settings)
        if not await self._publisher.write(birth.object_id, files, job.range):
            return 0
        done = await self._replace(birth.object_id, made.ranges, sources)
        self._release(job, sources)
        return done

    # Input.

    async def _sources(self, ranges: Sequence[RowRange]) -> list[CapturedRange]:
        """Read ranges that are still as planned; skip those with an unreadable row."""
        sources = capture(self.replica.state, ranges)
        rows = [row for source in sources for row in source.rows]
        await refine(rows, self.read)
        failed = [row for row in rows if row.error]
        if failed:
            await self._report(sources)
        return [source for source in sources if not any(row.error for row in source.rows)]

    async def _report(self, sources: list[CapturedRange]) -> None:
        """Report unreadable rows, unless they were moved: their old object may be deleted."""
        await self.replica.barrier()
        state = self.replica.state
        unreachable: list[Error] = []
        for source in sources:
            is_there = bool(capture(state, [source.range]))
            for row in source.rows:
                if row.error and is_there:
                    self._report_row(source, row, row.error)
                    unreachable += [] if row.is_damaged else [row.error]
        if unreachable:
            # One line for all: if the store cannot be reached, there may be thousands.
            log.warning("%d rows cannot be read now: %s", len(unreachable), unreachable[0])

    def _report_row(self, source: CapturedRange, refined: RefinedRow, error: Error) -> None:
        row = refined.row
        subject = (
            f"topic {source.topic.name} partition {source.partition.index} offsets "
            f"{row.base_offset} to {row.end_offset - 1}, object {row.object_id} at byte "
            f"{row.position}"
        )
        key = "row", row.object_id, row.position
        if refined.is_damaged:
            self.damage.add((row.object_id, row.position))
            DAMAGED_ROWS.inc()
            subject = f"damaged, run `rookery fsck`: {subject}"
        self.quarantine.add(key, subject, error, is_logged=refined.is_damaged)

    def _forget_damage(self) -> None:
        """Drop damage in objects without live data."""
        rows, topics = self.replica.state.objects.rows, self.replica.state.topics
        self.damage.difference_update([place for place in self.damage if not rows.get(place[0])])
        self.quarantine.keep(
            lambda key: (
                bool(rows.get(key[1]))
                if key[0] == "row"
                else topics.partition(key[1], key[2]) is not None
            )
        )

    # Output.

    async def _replace(
        self, object_id: int, ranges: list[ReplacedRange], sources: list[CapturedRange]
    ) -> int:
        """Point the rows to the new object; ranges that have changed meanwhile are not affected."""
        futures = [
            self.replica.propose([RowsReplaced(object_id=object_id, ranges=some)])
            for some in _events(ranges)
        ]
        outcomes = await asyncio.gather(*futures)
        counted = [is_replaced for [outcome] in outcomes for is_replaced in outcome.value]
        VOID_RANGES.inc(counted.count(False))
        inputs = {row.row.object_id for source in sources for row in source.rows}
        if any(counted):
            self._publisher.adopt(object_id)
            self._planner.adopt(object_id, inputs, self.clock.monotonic_ms())
        else:
            await self._publisher.condemn_orphans()
        done = zip(sources, counted, strict=True)
        return sum(source.range.size for source, is_counted in done if is_counted)


def _events(ranges: Sequence[ReplacedRange]) -> Iterator[list[ReplacedRange]]:
    """Divide ranges into lists that fit into an event."""
    group: list[ReplacedRange] = []
    pieces = 0
    for replaced in ranges:
        pieces += len(replaced.pieces)
        if group and (len(group) == _EVENT_RANGES or pieces > _EVENT_PIECES):
            yield group
            group, pieces = [], len(replaced.pieces)
        group.append(replaced)
    if group:
        yield group
