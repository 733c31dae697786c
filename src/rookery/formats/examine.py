"""Looks through a segment that may be damaged, and names every fault instead of the first.

For people who want to know what is left of a file; readers use `formats.layout`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from rookery.errors import Error
from rookery.formats.index import HEADER_BYTES as INDEX_HEADER_BYTES
from rookery.formats.index import Index, parse_index
from rookery.formats.segment import (
    FOOTER_BYTES,
    HEADER_BYTES,
    SegmentFooter,
    SegmentHeader,
    parse_footer,
    parse_header,
)
from rookery.formats.segmentkeys import INDEX_ENDING, SEGMENT_ENDING, TIMES_ENDING
from rookery.formats.times import Times, parse_times
from rookery.records import batch as batches
from rookery.records.batch import BatchHeader
from rookery.records.crc import checksum
from rookery.records.kernel import Buffer

_COVERED_FROM: Final = 21
_COUNT_AT: Final = 16
_ENTRY_BYTES: Final = 12

_T = TypeVar("_T")


class Fault(NamedTuple):
    """Something that is wrong: in the file of this ending, at this byte."""

    ending: str
    position: int
    text: str


class Batch(NamedTuple):
    """A batch, positioned within the file, and whether its bytes are those its CRC was made of."""

    header: BatchHeader
    is_sound: bool


@dataclass(slots=True)
class Examination:
    """What was found in a segment and the files beside it; None is what could not be read."""

    header: SegmentHeader | None = None
    footer: SegmentFooter | None = None
    index: Index | None = None
    times: Times | None = None
    batches: list[Batch] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)


def examine(
    segment: Buffer | None, index: Buffer | None = None, times: Buffer | None = None
) -> Examination:
    """Read what can be read of a segment's files; those that are not there are None."""
    found = Examination()
    if index is not None:
        found.index = _try(found, INDEX_ENDING, 0, lambda: parse_index(index, "the index"))
    if times is not None:
        found.times = _try(found, TIMES_ENDING, 0, lambda: parse_times(times, "the times file"))
    if segment is not None:
        _examine_segment(found, segment)
    if found.times is not None:
        _compare_times(found, found.times, segment, index)
    if found.index is not None and segment is not None:
        _compare_index(found, found.index)
    return found


def _try(found: Examination, ending: str, position: int, read: Callable[[], _T]) -> _T | None:
    try:
        return read()
    except Error as error:
        found.faults.append(Fault(ending, position, str(error)))
        return None


def _examine_segment(found: Examination, data: Buffer) -> None:
    end = len(data) - FOOTER_BYTES
    found.header = _try(found, SEGMENT_ENDING, 0, lambda: parse_header(data, "the header"))
    if end < HEADER_BYTES:
        found.faults.append(Fault(SEGMENT_ENDING, len(data), "the file ends before its footer"))
        return
    found.footer = _try(found, SEGMENT_ENDING, end, lambda: parse_footer(data, "the footer"))
    for one in _walk(found, data):
        fault = _fault_in(memoryview(data)[one.header.position : one.header.end])
        if fault:
            text = f"the batch at offset {one.header.base_offset}: {fault}"
            found.faults.append(Fault(SEGMENT_ENDING, one.header.position, text))
        found.batches.append(one)
    _check_offsets(found)
    _check_ends(found, data)


def _walk(found: Examination, data: Buffer) -> Iterator[Batch]:
    """Go from batch to batch; where none can be read, go on where the next block begins."""
    view = memoryview(data)[: len(data) - FOOTER_BYTES]
    at = HEADER_BYTES
    while at < len(view):
        header = _parse(found, view, at)
        if header is not None:
            is_sound = checksum(view[at + _COVERED_FROM : header.end]) == header.crc
            yield Batch(header, is_sound)
            at = header.end
        else:
            at = min((start for start in _starts(found) if start > at), default=len(view))


def _parse(found: Examination, view: memoryview, at: int) -> BatchHeader | None:
    try:
        return batches.parse(view, at)
    except Error as error:
        text = f"no batch can be read here: {error}"
        found.faults.append(Fault(SEGMENT_ENDING, at, text))
        return None


def _fault_in(batch: memoryview) -> str:
    try:
        batches.verify(batch)
    except Error as error:
        # Where it begins is told by the fault's own position.
        return str(error).rpartition(": ")[2]
    return ""


def _starts(found: Examination) -> list[int]:
    if found.times is not None:
        return [block.position for block in found.times.blocks]
    return [entry.position for entry in found.index.entries] if found.index else []


def _check_offsets(found: Examination) -> None:
    expected = found.header.base_offset if found.header else 0
    last = found.footer.last_offset if found.footer else None
    for header, _ in found.batches:
        if header.base_offset < expected or (last is not None and header.last_offset > last):
            text = (
                f"a batch with the offsets {header.base_offset} to {header.last_offset} where "
                f"{expected} to {last} can be"
            )
            found.faults.append(Fault(SEGMENT_ENDING, header.position, text))
        expected = max(expected, header.last_offset + 1)


def _check_ends(found: Examination, data: Buffer) -> None:
    end = len(data) - FOOTER_BYTES
    crc = checksum(memoryview(data)[HEADER_BYTES:end])
    if found.footer is not None and found.footer.crc != crc:
        text = f"the footer says CRC-32C {found.footer.crc:#010x}, the batches have {crc:#010x}"
        found.faults.append(Fault(SEGMENT_ENDING, end, text))
    count = sum(one.header.record_count for one in found.batches)
    if found.header is not None and found.header.message_count != count:
        text = f"the header says {found.header.message_count} records, the batches hold {count}"
        found.faults.append(Fault(SEGMENT_ENDING, _COUNT_AT, text))


def _compare_times(
    found: Examination, times: Times, segment: Buffer | None, index: Buffer | None
) -> None:
    if index is not None:
        _try(found, INDEX_ENDING, 0, lambda: times.check_index(index, "the index"))
    if segment is None:
        return
    size = len(segment)
    _try(
        found, SEGMENT_ENDING, 0, lambda: times.check_segment(segment, segment, size, "the segment")
    )
    ends = [block.position for block in times.blocks[1:]] + [times.size - FOOTER_BYTES]
    view = memoryview(segment)
    for block, end in zip(times.blocks, ends, strict=False):
        if checksum(view[block.position : end]) != block.crc:
            text = f"the {end - block.position} bytes from here on are not what was written"
            found.faults.append(Fault(SEGMENT_ENDING, block.position, text))


def _compare_index(found: Examination, index: Index) -> None:
    starts = {one.header.position: one.header.base_offset for one in found.batches}
    for number, (offset, position) in enumerate(index.entries):
        if starts.get(position) != offset:
            text = f"at byte {position} of the segment no batch with offset {offset} begins"
            at = INDEX_HEADER_BYTES + number * _ENTRY_BYTES
            found.faults.append(Fault(INDEX_ENDING, at, text))
