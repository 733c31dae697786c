"""Reads all records of many partitions in time order, without a shuffle.

A record's place is (clock, topic, partition, offset). The clock is the highest timestamp so far in
its partition. So each partition keeps its own order regardless of its timestamps, and the records
between two places form one offset range in every partition. Tasks have consecutive spans: their
outputs, one after another, are in order.

A row's highest timestamp may belong to a record that readers do not see (a marker or an aborted
record). So spans only select the rows; the records themselves decide where a span begins and ends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from rookery.cluster.state.partition import Row
from rookery.direct.intime import Clocks, TimedPiece, in_time
from rookery.direct.log import DirectLog
from rookery.errors import Corrupt
from rookery.log.read.rangeplan import PlannedRange, block_rows, join_rows

SPAN_BYTES: Final = 64 * 1024 * 1024
"""What one task reads."""
_FAR: Final = (1 << 63) - 1
_NEEDED: Final = ("topic", "partition", "offset", "timestamp")


class Edge(NamedTuple):
    """A place in one partition: the first record with this clock, at or after this offset."""

    clock: int
    offset: int


class RecordMark(NamedTuple):
    """A place among all records."""

    clock: int
    rank: int
    """The partition's rank among those that are read."""
    offset: int

    def within(self, rank: int) -> Edge:
        """Return this place within a partition; for equal clocks, the lower rank is first."""
        if rank == self.rank:
            return Edge(self.clock, self.offset)
        return Edge(self.clock, _FAR if rank < self.rank else 0)


_BEGIN: Final = RecordMark(-1, 0, 0)
_END: Final = RecordMark(_FAR, _FAR, 0)


@dataclass(frozen=True, slots=True)
class SpanPart:
    """The part of one partition that a task reads."""

    range: PlannedRange
    """The rows that may contain the span."""
    begin: Edge
    end: Edge
    stop: int
    """The end of the wanted records, over all spans."""
    clock: int
    """The minimum clock."""
    risen: PlannedRange | None
    """The row before the range that should raise the clock to that of the beginning."""
    tops: tuple[tuple[int, int], ...]
    """For each row in the range: its end offset, and the highest clock that it can have."""


@dataclass(frozen=True, slots=True)
class SpanShare:
    """What one task reads."""

    end: RecordMark
    parts: list[SpanPart]
    offsets: int
    """The approximate number of offsets."""

    @property
    def size(self) -> int:
        """The number of bytes to read."""
        return sum(part.range.size for part in self.parts)


async def span_shares(
    log: DirectLog,
    ranges: Sequence[PlannedRange],
    min_tasks: int,
    *,
    clock: int = -1,
    max_offsets: int = _FAR,
    enough: int = _FAR,
) -> list[SpanShare]:
    """Cut the order into spans of about equal size in bytes.

    Args:
        log: the log from which segment indexes are read.
        ranges: the ranges, in the order that breaks ties between equal clocks.
        min_tasks: the approximate minimum number of spans, if there is enough to read.
        clock: the clock of the records read before; records of the ranges have no lower clock.
        max_offsets: the approximate maximum number of offsets in a span.
        enough: spans after this number of bytes are left out.

    Raises:
        Corrupt, Conflict, Unavailable: an index cannot be read.
    """
    fine = [_FineRows(await _blocks(log, range_), clock) for range_ in ranges]
    shares: list[SpanShare] = []
    begin, size = _BEGIN, 0
    for end, offsets in _cuts(fine, min_tasks, max_offsets):
        parts = [rows.part(begin.within(rank), end.within(rank)) for rank, rows in enumerate(fine)]
        share = SpanShare(end, [part for part in parts if part is not None], offsets)
        shares += [share] if share.parts else []
        size += share.size
        if size > enough:
            break
        begin = end
    return shares


async def _blocks(log: DirectLog, range_: PlannedRange) -> PlannedRange:
    """Return a range whose segments are replaced by the blocks that it needs, as rows."""
    rows: list[Row] = []
    for row in range_.rows:
        if row.is_segment:
            rows += block_rows(row, (await log.layouts.get(row)).blocks)
        else:
            rows.append(row)
    wanted = (row for row in rows if row.end_offset > range_.begin and row.base_offset < range_.end)
    return replace(range_, rows=tuple(wanted))


def _cuts(
    fine: Sequence[_FineRows], min_tasks: int, max_offsets: int
) -> list[tuple[RecordMark, int]]:
    """Choose the places at which spans end, so that spans have equal size; with their offsets."""
    pieces = sorted(
        piece for rank, rows in enumerate(fine) for piece in rows.pieces(rank, max_offsets)
    )
    total = sum(size for _, size, _ in pieces)
    target = total / max(1, min_tasks, -(-total // SPAN_BYTES))
    cuts: list[tuple[RecordMark, int]] = []
    size, offsets = 0.0, 0
    for mark, more, count in pieces:
        if size and (size >= target or offsets + count > max_offsets):
            cuts.append((mark, offsets))
            size, offsets = 0.0, 0
        size += more
        offsets += count
    return [*cuts, (_END, offsets)]


class _FineRows:
    """A partition's rows, with the highest clock that a record of each can have."""

    def __init__(self, whole: PlannedRange, clock: int) -> None:
        self._whole = whole
        self._clock = clock
        times = (row.max_timestamp for row in whole.rows)
        self._clocks = list(accumulate(times, max, initial=clock))[1:]
        self._lasts = [
            Edge(high, row.end_offset - 1)
            for high, row in zip(self._clocks, whole.rows, strict=True)
        ]

    def pieces(self, rank: int, max_offsets: int) -> Iterator[tuple[RecordMark, float, int]]:
        """Yield where the order can be cut, with the bytes and offsets up to the next cut."""
        for clock, row in zip(self._clocks, self._whole.rows, strict=True):
            begin, end = self._clip(row)
            step = min(end - begin, max_offsets)
            for offset in range(begin, end, step):
                count = min(step, end - offset)
                yield RecordMark(clock, rank, offset), row.size * count / (end - begin), count

    def part(self, begin: Edge, end: Edge) -> SpanPart | None:
        """Return the rows from the first that can begin a span to the first that can end it."""
        whole, rows = self._whole, self._whole.rows
        first = bisect_left(self._lasts, begin)
        if first == len(rows):
            return None
        stop = bisect_left(self._lasts, end, first)
        if stop < len(rows) and not self._is_behind(first, stop, end):
            stop += 1
        taken = join_rows(rows[first:stop])
        return SpanPart(
            range=replace(
                whole,
                begin=self._clip(rows[first])[0] if first else whole.begin,
                end=whole.end if stop == len(rows) else self._clip(rows[stop - 1])[1],
                rows=taken,
            ),
            begin=begin,
            end=end,
            stop=whole.end,
            clock=self._clock,
            risen=self._risen(first, begin),
            tops=tuple(
                (row.end_offset, top)
                for row, top in zip(rows[first:stop], self._clocks[first:stop], strict=True)
            ),
        )

    def _is_behind(self, first: int, at: int, end: Edge) -> bool:
        """Whether a row should already be after the end, and other rows come before it."""
        return at > first and Edge(self._clocks[at - 1], self._whole.rows[at].base_offset) >= end

    def _risen(self, first: int, begin: Edge) -> PlannedRange | None:
        """Return the row for which it must be checked whether its highest timestamp is visible."""
        is_cut = first and self._clocks[first - 1] == begin.clock > self._clock
        if not is_cut or begin.offset == _FAR:
            return None
        row = self._whole.rows[bisect_left(self._clocks, begin.clock)]
        first_offset, end = self._clip(row)
        return replace(self._whole, begin=first_offset, end=end, rows=(row,))

    def _clip(self, row: Row) -> tuple[int, int]:
        return max(row.base_offset, self._whole.begin), min(row.end_offset, self._whole.end)


Read = Callable[[PlannedRange, Sequence[str]], Iterable[pa.RecordBatch]]
"""Reads the columns of a range."""
Again = Callable[[PlannedRange, int, int], PlannedRange | None]
"""Replans a range, from one offset to another."""
Reached = dict[tuple[str, int], int]
"""By topic and partition, the end offset of the records in this span and all earlier ones."""


def read_in_order(
    share: SpanShare,
    columns: Sequence[str],
    read: Read,
    again: Again,
    reached: Reached | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a span in order; a few batches of each partition are in memory.

    Args:
        share: the span and its parts.
        columns: the columns to yield, by the decoder's names.
        read: reads a range.
        again: plans the offsets after a range, if the span did not end there.
        reached: receives the span's end offsets after everything is read.
    """
    names = tuple(dict.fromkeys((*columns, *_NEEDED)))
    takings = [_SpanReader(part, {} if reached is None else reached) for part in share.parts]
    return in_time([taking.pieces(names, read, again) for taking in takings], list(columns))


class _SpanReader:
    """The records of one partition that are in a span."""

    def __init__(self, part: SpanPart, reached: Reached) -> None:
        self._part = part
        self._reached = reached
        self._clock = part.clock
        self._next: int | None = None
        """The offset of the first record after the span, if it was seen."""
        # After the range, nothing is known.
        self._row_ends = np.array([end for end, _ in part.tops], np.int64)
        self._tops = np.array([*(top for _, top in part.tops), _FAR], np.int64)

    def pieces(self, names: Sequence[str], read: Read, again: Again) -> Iterator[TimedPiece]:
        part = self._part
        rest = self._begin(read, again)
        end = part.stop
        while rest is not None:
            for batch in read(rest, names):
                piece = self._take(batch)
                if len(piece.clocks):
                    yield piece
                if self._next is not None:
                    break
            end = rest.end if self._next is None else self._next
            is_over = self._next is not None or Edge(self._clock, end) >= part.end
            rest = None if is_over or end >= part.stop else again(rest, end, part.stop)
        self._reached[part.range.topic, part.range.partition] = end

    def _begin(self, read: Read, again: Again) -> PlannedRange | None:
        """Return the range to read; it includes the row that raises the clock if that is hidden."""
        part = self._part
        if part.risen is None:
            return part.range
        for batch in read(part.risen, _NEEDED):
            self._clock = max(self._clock, int(_times(batch).max(initial=-1)))
        if self._clock >= part.begin.clock:
            return part.range
        self._clock = part.clock
        return again(part.range, part.risen.begin, part.stop)

    def _take(self, batch: pa.RecordBatch) -> TimedPiece:
        clocks = np.maximum.accumulate(np.maximum(_times(batch), self._clock))
        offsets = np.asarray(batch["offset"])
        self._check(clocks, offsets)
        first, stop = (
            _before(clocks, offsets, edge) for edge in (self._part.begin, self._part.end)
        )
        if len(clocks):
            self._clock = int(clocks[-1])
        if stop < len(clocks):
            self._next = int(offsets[stop])
        return TimedPiece(batch.slice(first, stop - first), clocks[first:stop])

    def _check(self, clocks: Clocks, offsets: np.ndarray[Any, Any]) -> None:
        """Reject timestamps above those of their rows: other spans would not find these records."""
        tops = self._tops[np.searchsorted(self._row_ends, offsets, "right")]
        if (wrong := np.flatnonzero(clocks > tops)).size:
            range_ = self._part.range
            raise Corrupt(
                f"{range_.topic}-{range_.partition}: the record at offset {offsets[wrong[0]]} is "
                "of a later time than its batch says, so that an order by time would leave some "
                "out; `rookery job copy` or `repartition` rewrites the topic so that it can be read"
            )


def _times(batch: pa.RecordBatch) -> Clocks:
    # A record without a timestamp is as old as the record before it.
    return np.asarray(batch["timestamp"].cast(pa.int64()).fill_null(-1))


def _before(clocks: Clocks, offsets: np.ndarray[Any, Any], edge: Edge) -> int:
    """Return the number of records before an edge."""
    first, stop = (int(np.searchsorted(clocks, edge.clock, side)) for side in ("left", "right"))
    return first + int(np.searchsorted(offsets[first:stop], edge.offset))
