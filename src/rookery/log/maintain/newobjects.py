"""Builds, names and writes new objects; they are orphans until an event references them.

Merges, segments and compaction write objects that an event may reject, because another process was
faster or the topic was deleted. Until an event has taken effect, an object is an orphan of this
process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, NamedTuple, Protocol

from rookery.clock import Clock
from rookery.cluster.events.logevents import (
    ObjectsCondemned,
    ReplacedRange,
    RowPiece,
    SegmentsStaged,
    StagedSegment,
)
from rookery.cluster.state.aborts import within
from rookery.cluster.state.partition import Partition, RowKind
from rookery.cluster.state.state import Outcome, State
from rookery.cluster.state.topics import Topic
from rookery.errors import Conflict
from rookery.formats.keys import index_key, split_object_id, times_key
from rookery.formats.manifest import Manifest, ManifestExtent, ManifestTopic, write_head
from rookery.formats.segmentwriter import FinishedSegment, SegmentWriter
from rookery.formats.times import SegmentAbort, SegmentEpoch, SegmentOrigin
from rookery.log.maintain.refine import RefinedRow
from rookery.log.maintain.rewritejob import RowRange
from rookery.log.read.objects import key_of
from rookery.log.read.runs import MOST_OFFSETS
from rookery.log.settings import RewriteSettings
from rookery.records import batches
from rookery.records.kernel import Buffer
from rookery.store.port import Store
from rookery.wire.message import Message

# Smaller parts are joined: sending many parts to a store is slower than one copy.
_JOIN_BELOW: Final = 4 * 1024
# The number of orphans that one event condemns.
_AT_ONCE: Final = 1000


class CapturedRange(NamedTuple):
    """A range that is still as planned, and its rows."""

    topic: Topic
    partition: Partition
    range: RowRange
    rows: list[RefinedRow]


class Birth(NamedTuple):
    """Facts about the creation of a new object."""

    object_id: int
    created_ms: int
    seen: int
    """The last entry of the cluster log that was applied."""


class NewObject(NamedTuple):
    """The bytes of a new object, and the replacement of each of its source ranges."""

    parts: list[Buffer]
    ranges: list[ReplacedRange]


def capture(state: State, ranges: Iterable[RowRange]) -> list[CapturedRange]:
    """Copy the rows of the ranges that are still as planned."""
    captured = []
    for planned in ranges:
        partition = state.topics.partition(planned.topic_id, planned.partition)
        span = partition.span(planned.base_offset, planned.end_offset) if partition else None
        if partition is None or span is None or partition.fingerprint(span) != planned.fingerprint:
            continue
        rows = [RefinedRow(partition, partition.row(index)) for index in span]
        captured.append(
            CapturedRange(state.topics.by_id[planned.topic_id], partition, planned, rows)
        )
    return captured


def merge(birth: Birth, sources: Sequence[CapturedRange], row_bytes: int) -> NewObject:
    """Put final rows of many partitions after a manifest; each is at most `row_bytes` long."""
    joined = [list(_join_rows(source.rows, row_bytes)) for source in sources]
    head = _head(birth, sources, joined)
    position = len(head)
    ranges = []
    for source, rows in zip(sources, joined, strict=True):
        pieces = []
        for row in rows:
            pieces.append(_piece(row, position))
            position += pieces[-1].size
        ranges.append(_make_range(source.range, pieces, RowKind.FINAL))
    parts = (part for source in sources for row in source.rows for part in row.parts)
    return NewObject([head, *_join_parts(parts)], ranges)


def segment(
    birth: Birth,
    source: CapturedRange,
    namespace: str,
    settings: RewriteSettings,
    compacted_to: int = 0,
) -> tuple[FinishedSegment, NewObject]:
    """Build a segment of the final rows of one partition.

    Aborted transactions that end below `compacted_to` have no records any more and are left out.
    """
    base, end = source.range.base_offset, source.range.end_offset
    writer = SegmentWriter(
        base, interval=settings.index_interval, interval_bytes=settings.index_interval_bytes
    )
    for row in source.rows:
        for parts in row.batches():
            writer.add(*parts)
    origin = SegmentOrigin(
        namespace,
        source.topic.name,
        source.topic.id,
        source.partition.index,
        *split_object_id(birth.object_id),
    )
    epochs = [SegmentEpoch(*epoch) for epoch in source.partition.epochs]
    aborted = [
        SegmentAbort(*transaction[:3])
        for transaction in within(source.partition.aborted, base, end)
        if transaction.last_offset >= compacted_to
    ]
    files = writer.finish(origin, end - 1, birth.created_ms, aborted=aborted, epochs=epochs)
    piece = RowPiece(
        base_offset=base,
        position=0,
        size=files.size,
        max_timestamp=max(refined.row.max_timestamp for refined in source.rows),
    )
    replaced = _make_range(source.range, [piece], RowKind.FINAL | RowKind.SEGMENT)
    return files, NewObject(files.parts, [replaced])


def _join_rows(rows: Sequence[RefinedRow], row_bytes: int) -> Iterator[list[RefinedRow]]:
    """Group rows that become one new row."""
    group: list[RefinedRow] = []
    size = 0
    for refined in chain.from_iterable(map(_short, rows)):
        offsets = refined.row.end_offset - group[0].row.base_offset if group else 0
        if group and (size + refined.size > row_bytes or offsets > MOST_OFFSETS):
            yield group
            group, size = [], 0
        group.append(refined)
        size += refined.size
    yield group


def _short(refined: RefinedRow) -> Iterable[RefinedRow]:
    """Divide a row with more offsets than a manifest's extent can state, batch by batch."""
    row = refined.row
    if row.end_offset - row.base_offset <= MOST_OFFSETS:
        return [refined]
    parts = [part for batch in refined.batches() for part in batch]
    whole = b"".join(parts)
    headers = batches.outline(whole)
    ends = [header.base_offset for header in headers[1:]] + [row.end_offset]
    bases = [row.base_offset, *ends[:-1]]
    return [
        replace(
            refined,
            row=row._replace(base_offset=base, end_offset=end),
            size=header.size,
            parts=[whole[header.position : header.end]],
        )
        for header, base, end in zip(headers, bases, ends, strict=True)
    ]


def _piece(rows: list[RefinedRow], position: int) -> RowPiece:
    return RowPiece(
        base_offset=rows[0].row.base_offset,
        position=position,
        size=sum(row.size for row in rows),
        max_timestamp=max(row.row.max_timestamp for row in rows),
    )


def _make_range(planned: RowRange, pieces: list[RowPiece], kind: RowKind) -> ReplacedRange:
    return ReplacedRange(
        topic_id=planned.topic_id,
        partition=planned.partition,
        base_offset=planned.base_offset,
        end_offset=planned.end_offset,
        fingerprint=planned.fingerprint,
        kind=int(kind),
        cleaned_to=-1,
        pieces=pieces,
    )


def _join_parts(data: Iterable[Buffer]) -> list[Buffer]:
    """Join small parts."""
    parts: list[Buffer] = []
    small = bytearray()
    for part in data:
        if len(part) < _JOIN_BELOW:
            small += part
            continue
        if small:
            parts.append(small)
            small = bytearray()
        parts.append(part)
    return [*parts, small] if small else parts


def _head(
    birth: Birth, sources: Sequence[CapturedRange], joined: Sequence[Sequence[list[RefinedRow]]]
) -> bytes:
    """Write the manifest, which is sufficient to find the rows again."""
    numbers: dict[bytes, int] = {}
    topics: list[ManifestTopic] = []
    extents: list[ManifestExtent] = []
    for source, rows in zip(sources, joined, strict=True):
        topic = source.topic
        if topic.id not in numbers:
            numbers[topic.id] = len(topics)
            partitions = len(topic.partitions)
            topics.append(ManifestTopic(topic_id=topic.id, name=topic.name, partitions=partitions))
        extents += (_extent(numbers[topic.id], source.partition.index, row) for row in rows)
    return write_head(
        Manifest(
            object_id=birth.object_id,
            created_ms=birth.created_ms,
            seen=birth.seen,
            topics=topics,
            extents=extents,
            earlier=[],
        )
    )


def _extent(topic: int, partition: int, rows: list[RefinedRow]) -> ManifestExtent:
    base = rows[0].row.base_offset
    return ManifestExtent(
        topic=topic,
        partition=partition,
        size=sum(row.size for row in rows),
        kind=int(RowKind.FINAL),
        base_offset=base,
        records=rows[-1].row.end_offset - base,
        attributes=0,
        max_timestamp=max(row.row.max_timestamp for row in rows),
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
    )


class Proposer(Protocol):
    """The methods of a replica that are needed here."""

    @property
    def state(self) -> State:
        """The state as of the last entry applied."""

    def propose(self, events: Sequence[Message]) -> asyncio.Future[list[Outcome]]:
        """Put events into the next entry."""

    async def barrier(self) -> None:
        """Return when all entries that were in the log before this call are applied."""


@dataclass(kw_only=True, slots=True)
class Publisher:
    """Names and writes the objects of one process, and condemns those that no event referenced."""

    replica: Proposer
    store: Store
    clock: Clock
    next_id: Callable[[], int]
    """Returns the id of a new object in the store, of this process's incarnation."""
    namespace: str
    """The prefix of segment keys."""
    _orphans: set[int] = field(default_factory=set)

    def birth(self) -> Birth:
        """Return the creation facts of a new object."""
        return Birth(self.next_id(), self.clock.now_ms(), self.replica.state.applied)

    async def write(self, object_id: int, files: FinishedSegment, covered: RowRange) -> bool:
        """Write a segment after staging its name; return False if its topic was deleted.

        Raises:
            Unavailable: the store or the cluster log cannot be reached.
            Conflict: another process has written an object under one of our keys.
        """
        key = await self._stage(object_id, covered)
        if key is None:
            return False
        try:
            # The segment is written last: a reader that finds it also finds its index and times.
            await self.store.create(index_key(key), [files.index])
            await self.store.create(times_key(key), [files.times])
            await self.store.create(key, files.parts)
        except Conflict:
            # The object is not ours, so we must not delete it. The next attempt gets another name.
            self.adopt(object_id)
            raise
        return True

    def doubt(self, object_id: int) -> None:
        """Treat an object as an orphan until an event references it."""
        self._orphans.add(object_id)

    def adopt(self, object_id: int) -> None:
        """Stop treating an object as an orphan."""
        self._orphans.discard(object_id)

    async def condemn_orphans(self) -> None:
        """Condemn our objects that no row references; objects with rows are not affected."""
        while some := sorted(self._orphans)[:_AT_ONCE]:
            await self.replica.propose([ObjectsCondemned(object_ids=some)])
            self._orphans.difference_update(some)

    async def _stage(self, object_id: int, covered: RowRange) -> str | None:
        """Stage a segment's name; return None if its topic was deleted.

        From here on the state contains the name, so the remains of a crash can be found by it.
        """
        staged = StagedSegment(
            object_id=object_id,
            topic_id=covered.topic_id,
            partition=covered.partition,
            base_offset=covered.base_offset,
        )
        self.doubt(object_id)
        await self.replica.propose([SegmentsStaged(segments=[staged])])
        if object_id in self.replica.state.objects.segments:
            return key_of(self.replica.state, self.namespace, object_id)
        self.adopt(object_id)
        return None
