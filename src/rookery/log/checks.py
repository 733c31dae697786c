"""Checks what was read against the rows that say what must be there.

A batch's own CRC leaves out its first 16 bytes: its offset, length and leader epoch. Those are
checked against the row, its neighbours and the epochs that the state knows; of a segment, the
CRC of its block covers them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from rookery.cluster.state.partition import Row
from rookery.errors import Corrupt
from rookery.formats.layout import Layout, Span
from rookery.log.runs import Run
from rookery.log.tail import Key
from rookery.records import batch as batches
from rookery.records.batch import BatchHeader
from rookery.wire.buffer import Buffer

EpochAt = Callable[[int], int]
"""The leader epoch in which an offset was written."""


class Found(NamedTuple):
    """A batch in the bytes of a run, and the offsets it has."""

    header: BatchHeader
    base: int
    end: int
    append_time: int  # -1: its own times hold


class Checked(NamedTuple):
    """The batches that were asked for, and whether there is nothing else in the bytes."""

    found: list[Found]
    is_end: bool


def check(key: Key, run: Run, data: Buffer, offset: int, epoch_at: EpochAt) -> Checked:
    """Check the batches of a run against its rows; leave out those before `offset`.

    A last batch that is not all there is left out too: not more was read.

    Raises:
        Corrupt: the first one wanted is damaged, or they are not those that the rows name.
    """
    headers = batches.outline(data)
    skipped = _skipped(run, headers, offset)
    if skipped == len(headers):
        return Checked([], is_end=_is_gap(key, run, data, headers))
    # Whether batches are damaged that nobody wants is not looked at, so that they do not hide the
    # rest; but only if the rest is seen to be in its place without them.
    first = skipped if _is_anchored(run, headers[skipped].position, headers[-1].end) else 0
    begin = headers[first].position
    good, error = batches.sound(memoryview(data)[begin:])
    if error is not None and len(good) <= skipped - first:
        raise _damaged(key, run, f"offset {offset}, at byte {run.position + begin}: {error}")
    headers[first:] = [header._replace(position=header.position + begin) for header in good]
    is_end = headers[-1].end == len(data)
    if not run.is_final:
        return Checked(_sent(key, run, headers, offset), is_end)
    found: list[Found] = []
    try:
        found.extend(_final(key, run, headers, skipped, epoch_at))
    except Corrupt:
        # A final batch stands for itself: those before it can be served.
        if not found:
            raise
        is_end = False
    return Checked(found, is_end)


def check_segment(
    layout: Layout, span: Span, data: Buffer, offset: int, epoch_at: EpochAt
) -> list[Found]:
    """Check blocks of a segment; return the batches before any damage, from `offset` on.

    Raises:
        Corrupt: the first one wanted is damaged.
    """
    headers, error = _sound_blocks(layout, span, data)
    found = [
        Found(header, header.base_offset, header.last_offset + 1, -1)
        for header in headers
        if header.last_offset >= offset
    ]
    if error is not None and not found:
        raise error
    if layout.blocks[span.first].crc is None:
        for one in found:
            _check_epoch(layout.name, one.header, epoch_at)
    return found


def fitting(found: list[Found], max_bytes: int, *, whole_first: bool) -> int:
    """Return how many of the batches fit."""
    if not found:
        return 0
    begin = found[0].header.position
    if found[-1].header.end - begin <= max_bytes:
        return len(found)
    count = 1 if whole_first else 0
    while count < len(found) and found[count].header.end - begin <= max_bytes:
        count += 1
    return count


def name(key: Key) -> str:
    """Return what a partition is called where only its id is known."""
    return f"topic {key[0].hex()} partition {key[1]}"


def _is_gap(key: Key, run: Run, data: Buffer, headers: list[BatchHeader]) -> bool:
    """Tell whether all bytes are batches that end before what is wanted, so that it is a gap."""
    if not run.is_final or (headers[-1].end if headers else 0) != len(data):
        return False
    _, error = batches.sound(data)
    if error is not None:
        raise _damaged(key, run, str(error))
    return True


def _is_anchored(run: Run, first: int, end: int) -> bool:
    """Tell whether batches are known to the end of the row in which the first one wanted lies.

    Then their counts must lead to the row's end, and a damaged count before them is noticed.
    """
    ends = (row.position + row.size - run.position for row in run.rows)
    return next(one for one in ends if one > first) <= end


def _skipped(run: Run, headers: list[BatchHeader], offset: int) -> int:
    """Return how many batches end before an offset."""
    base = run.base_offset
    for index, header in enumerate(headers):
        # Where there are no gaps, the counts are trusted, which a CRC covers, not the offsets.
        base = (base if run.is_dense else header.base_offset) + header.last_offset_delta + 1
        if base > offset:
            return index
    return len(headers)


def _sent(key: Key, run: Run, headers: list[BatchHeader], offset: int) -> list[Found]:
    """Give batches that say nothing of offsets those of their rows, one after the other."""
    base, found = run.base_offset, []
    rows = iter(run.rows)
    row = next(rows)
    for header in headers:
        if run.position + header.position >= row.position + row.size:
            _check_end(key, row, base)
            row = next(rows)
        end = base + header.last_offset_delta + 1
        if end > row.end_offset or run.position + header.end > row.position + row.size:
            raise _differs(key, row, end)
        if end > offset:
            found.append(Found(header, base, end, row.max_timestamp if row.is_append_time else -1))
        base = end
    if run.position + headers[-1].end == row.position + row.size:
        _check_end(key, row, base)
    return found


def _final(
    key: Key, run: Run, headers: list[BatchHeader], skipped: int, epoch_at: EpochAt
) -> Iterator[Found]:
    """Check the offsets that batches bear, and yield them but for those before what is wanted."""
    base, where = run.base_offset, name(key)
    rows = iter(run.rows)
    row = next(rows)
    for index, header in enumerate(headers):
        if run.position + header.position >= row.position + row.size:
            if run.is_dense:
                _check_end(key, row, base)
            row = next(rows)
            base = row.base_offset
        begin = header.base_offset
        if index < skipped and run.is_dense:
            begin = base  # nobody looks at it: its damage must not hide the rest
        elif begin < base or (run.is_dense and begin != base):
            raise _misplaced(key, row, begin, base)
        base = begin + header.last_offset_delta + 1
        if base > row.end_offset or run.position + header.end > row.position + row.size:
            raise _differs(key, row, base)
        if index >= skipped:
            _check_epoch(where, header, epoch_at)
            yield Found(header, begin, base, -1)
    if run.is_dense and run.position + headers[-1].end == row.position + row.size:
        _check_end(key, row, base)


def _sound_blocks(
    layout: Layout, span: Span, data: Buffer
) -> tuple[list[BatchHeader], Corrupt | None]:
    """Return the batches of the blocks before any damage, and the damage."""
    try:
        return layout.open(span, data), None
    except Corrupt as error:
        if len(data) != span.size:
            return [], error
    view = memoryview(data)
    sound: list[BatchHeader] = []
    for index in range(span.first, span.stop):
        one = layout.span(index, 0)
        start = one.position - span.position
        try:
            headers = layout.open(one, view[start : start + one.size])
        except Corrupt as error:
            return sound, error
        sound += [header._replace(position=header.position + start) for header in headers]
    return sound, None


def _check_epoch(where: str, header: BatchHeader, epoch_at: EpochAt) -> None:
    epoch = epoch_at(header.base_offset)
    if header.partition_leader_epoch != epoch:
        raise Corrupt(
            f"{where}: the batch at offset {header.base_offset} bears leader epoch "
            f"{header.partition_leader_epoch}, but was written in {epoch}"
        )


def _check_end(key: Key, row: Row, end: int) -> None:
    if end != row.end_offset:
        raise _differs(key, row, end)


def _damaged(key: Key, run: Run, text: str) -> Corrupt:
    return Corrupt(f"{name(key)}: object {run.object_id} from byte {run.position} on: {text}")


def _misplaced(key: Key, row: Row, begin: int, expected: int) -> Corrupt:
    return Corrupt(
        f"{name(key)}: in object {row.object_id} from byte {row.position} on, a batch bears offset "
        f"{begin} where {expected} comes next"
    )


def _differs(key: Key, row: Row, end: int) -> Corrupt:
    return Corrupt(
        f"{name(key)}: the batches at offset {row.base_offset} (object {row.object_id} at byte "
        f"{row.position}) end at {end}, but the cluster log says {row.end_offset}"
    )
