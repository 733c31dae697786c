"""All records of many partitions by time, without a shuffle.

A record's place is (clock, topic, partition, offset), where the clock is the highest time so far
in its partition. So a partition's own order is kept, whatever its times; and the records of a span
of time are one run of offsets in every partition. Tasks have spans that follow each other: what
they yield, one after the other, is in order.

A row's highest time may be that of a record which nobody sees (a marker, an aborted one). So spans
only choose the rows: where one begins and ends is decided by the records themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from rookery.cluster.state.partition import Row
from rookery.direct.log import DirectLog
from rookery.direct.plan import PlannedRange, block_rows, joined_rows

SPAN_BYTES: Final = 64 * 1024 * 1024
"""What one task reads, and has in memory decoded."""
_YIELD_ROWS: Final = 32_768
"""Rows that are put in order at once, about."""
_SAMPLED: Final = 64
_FAR: Final = (1 << 62) - 1
Clocks = np.ndarray[Any, np.dtype[np.int64]]
_NEEDED: Final = ("topic", "partition", "offset", "timestamp")


class Span(NamedTuple):
    """A stretch of time: from `begin` to before `end`, in milliseconds."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class SpanShare:
    """What one task reads: the rows in which its span may lie."""

    span: Span
    ranges: list[PlannedRange]
    stops: list[int]
    """Where each partition's records that are wanted end, of all spans."""


async def shares(log: DirectLog, ranges: Sequence[PlannedRange], min_tasks: int) -> list[SpanShare]:
    """Cut time into spans of about the same number of bytes.

    Raises:
        Corrupt, Conflict, Unavailable: an index cannot be read.
    """
    fine = [await _fine(log, one) for one in ranges]
    spans = _spans(fine, min_tasks)
    found = []
    for span in spans:
        own = [_within(one, span) for one in fine]
        found.append(
            SpanShare(
                span,
                [one for one in own if one is not None],
                [whole.end for whole, one in zip(fine, own, strict=True) if one is not None],
            )
        )
    return [one for one in found if one.ranges]


async def _fine(log: DirectLog, one: PlannedRange) -> PlannedRange:
    """Return a range with the blocks of its segments as rows."""
    rows: list[Row] = []
    for row in one.rows:
        if row.is_segment:
            rows += block_rows(row, (await log.layouts.get(row)).blocks)
        else:
            rows.append(row)
    return replace(one, rows=tuple(rows))


def _spans(ranges: Sequence[PlannedRange], min_tasks: int) -> list[Span]:
    """Choose the times at which spans end, so that each has its share of the bytes."""
    marks: list[tuple[int, int]] = []
    for one in ranges:
        clock = -1
        for row in one.rows:
            clock = max(clock, row.max_timestamp)
            marks.append((clock, row.size))
    marks.sort()
    total = sum(size for _, size in marks)
    target = total / max(1, min_tasks, -(-total // SPAN_BYTES))
    cuts, size = [-1], 0
    for clock, more in marks:
        if size >= target and clock > cuts[-1]:
            cuts.append(clock)
            size = 0
        size += more
    return [Span(*ends) for ends in zip(cuts, [*cuts[1:], _FAR], strict=True)]


def _within(one: PlannedRange, span: Span) -> PlannedRange | None:
    """Return the rows from the first that can begin a span to the first that can end it."""
    rows = one.rows
    first = next((at for at, row in enumerate(rows) if row.max_timestamp >= span.begin), None)
    if span.begin < 0:
        first = 0
    if first is None or not rows:
        return None
    stop = next(
        (at + 1 for at in range(first, len(rows)) if rows[at].max_timestamp >= span.end), len(rows)
    )
    taken = joined_rows(rows[first:stop])
    begin = one.begin if not first else max(one.begin, taken[0].base_offset)
    end = one.end if stop == len(rows) else min(one.end, taken[-1].end_offset)
    return replace(one, begin=begin, end=end, rows=taken)


Read = Callable[[PlannedRange, Sequence[str]], Iterable[pa.RecordBatch]]
"""Reads the columns of a range."""
Again = Callable[[PlannedRange, int, int], PlannedRange | None]
"""Plans a range anew, from an offset to another."""


def ordered(
    share: SpanShare, columns: Sequence[str], read: Read, again: Again
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a span in order.

    Args:
        share: the span, and where it lies.
        columns: those wanted, as the decoder calls them.
        read: reads a range.
        again: plans what lies behind it, should the span not have ended there.
    """
    names = tuple(dict.fromkeys((*columns, *_NEEDED)))
    tables: list[pa.RecordBatch] = []
    clocks: list[Clocks] = []
    for one, stop in zip(share.ranges, share.stops, strict=True):
        taking = _Taking(share.span)
        rest: PlannedRange | None = one
        while rest is not None:
            for batch in read(rest, names):
                taking.take(batch)
                if taking.is_done:
                    break
            is_over = taking.is_done or rest.end >= stop
            rest = None if is_over else again(rest, rest.end, stop)
        tables += taking.batches
        clocks += taking.clocks
    yield from _merged(tables, clocks, list(columns))


def _merged(
    batches: Sequence[pa.RecordBatch], clocks: Sequence[Clocks], columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """Yield rows by their clocks, those of some time at once; of equal ones, the first stays first.

    The clocks of each batch go up. So what is of a stretch of time is one slice of each of them:
    little enough to stay in the processor's caches while it is put in order.
    """
    begins = [0] * len(batches)
    for bound in _bounds(clocks):
        slices, times = [], []
        for index, (batch, own) in enumerate(zip(batches, clocks, strict=True)):
            begin, end = begins[index], int(np.searchsorted(own, bound))
            if end > begin:
                slices.append(batch.slice(begin, end - begin).select(columns))
                times.append(own[begin:end])
                begins[index] = end
        if slices:
            order = np.argsort(np.concatenate(times), kind="stable")
            table = pa.Table.from_batches(slices).combine_chunks().take(order)
            yield from table.to_batches(max_chunksize=65_536)


def _bounds(clocks: Sequence[Clocks]) -> list[int]:
    """Choose times, the last behind all, between which about as many rows lie as are yielded."""
    if not clocks:
        return []
    some = np.sort(np.concatenate([own[::_SAMPLED] for own in clocks]))
    step = _YIELD_ROWS // _SAMPLED
    return [*np.unique(some[step::step]).tolist(), _FAR]


class _Taking:
    """The records of one partition that are in a span."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._clock = -1
        self.batches: list[pa.RecordBatch] = []
        self.clocks: list[Clocks] = []
        self.is_done = False

    def take(self, batch: pa.RecordBatch) -> None:
        times = np.asarray(batch["timestamp"].cast(pa.int64()))
        clocks = np.maximum(np.maximum.accumulate(times), self._clock)
        if not len(clocks):
            return
        self._clock = int(clocks[-1])
        first, stop = np.searchsorted(clocks, [self._span.begin, self._span.end])
        self.is_done = bool(stop < len(clocks))
        if stop > first:
            self.batches.append(batch.slice(first, stop - first))
            self.clocks.append(clocks[first:stop])
