"""Examines a segment that may be damaged, and reports every fault instead of the first.

`rookery segment dump` shows the result; readers use `formats.layout`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from rookery.errors import Error
from rookery.formats.keys import INDEX_ENDING, SEGMENT_ENDING, TIMES_ENDING
from rookery.formats.segment import (
    FOOTER_BYTES,
    HEADER_BYTES,
    INDEX_HEADER_BYTES,
    Index,
    SegmentFooter,
    SegmentHeader,
    parse_footer,
    parse_header,
    parse_index,
)
from rookery.formats.times import Times, parse_times
from rookery.records import batches, policy
from rookery.records.batches import BatchHeader
from rookery.records.crc import checksum
from rookery.records.expectation import FAR, Expectation, ExpectedExtent, OffsetRule
from rookery.records.kernel import Buffer

_COVERED_FROM: Final = 21
_COUNT_AT: Final = 16
_ENTRY_BYTES: Final = 12

_T = TypeVar("_T")


class SegmentFault(NamedTuple):
    """A fault at this byte of the file with this ending."""

    ending: str
    position: int
    text: str


class ExaminedBatch(NamedTuple):
    """A batch, positioned within the file, and whether its bytes match its CRC."""

    header: BatchHeader
    is_sound: bool


@dataclass(slots=True)
class Examination:
    """The contents of a segment's files; None stands for a part that could not be read."""

    header: SegmentHeader | None = None
    footer: SegmentFooter | None = None
    index: Index | None = None
    times: Times | None = None
    batches: list[ExaminedBatch] = field(default_factory=list)
    faults: list[SegmentFault] = field(default_factory=list)


def examine(
    segment: Buffer | None, index: Buffer | None = None, times: Buffer | None = None
) -> Examination:
    """Read as much as possible of a segment's files; None stands for a missing file."""
    report = Examination()
    if index is not None:
        report.index = _try(report, INDEX_ENDING, 0, lambda: parse_index(index, "the index"))
    if times is not None:
        report.times = _try(report, TIMES_ENDING, 0, lambda: parse_times(times, "the times file"))
    if segment is not None:
        _examine_segment(report, segment)
    if report.times is not None:
        _compare_times(report, report.times, segment, index)
    if report.index is not None and segment is not None:
        _compare_index(report, report.index)
    return report


def _try(report: Examination, ending: str, position: int, read: Callable[[], _T]) -> _T | None:
    try:
        return read()
    except Error as error:
        report.faults.append(SegmentFault(ending, position, str(error)))
        return None


def _examine_segment(report: Examination, data: Buffer) -> None:
    end = len(data) - FOOTER_BYTES
    report.header = _try(report, SEGMENT_ENDING, 0, lambda: parse_header(data, "the header"))
    if end < HEADER_BYTES:
        report.faults.append(
            SegmentFault(SEGMENT_ENDING, len(data), "the file ends before its footer")
        )
        return
    report.footer = _try(report, SEGMENT_ENDING, end, lambda: parse_footer(data, "the footer"))
    _examine_batches(report, memoryview(data)[HEADER_BYTES:end])
    _check_ends(report, data)


def _examine_batches(report: Examination, body: memoryview) -> None:
    """Read all batches; where none can be read, continue at the start of the next block."""
    base = report.header.base_offset if report.header else 0
    end = report.footer.last_offset + 1 if report.footer else FAR
    extent = ExpectedExtent(base, end, HEADER_BYTES, len(body))
    for scanned in policy.examine(body, Expectation.of(extent, OffsetRule.SPARSE), _starts(report)):
        headers = scanned.headers
        if (damage := scanned.damage) is not None:
            what = (
                f"the batch at offset {damage.offset}"
                if damage.end
                else "no batch can be read here"
            )
            report.faults.append(
                SegmentFault(SEGMENT_ENDING, damage.position, f"{what}: {damage.reason}")
            )
            if damage.end:
                headers = [*headers, batches.parse(body, damage.position - HEADER_BYTES)]
        report.batches += [_batch(header, body) for header in headers]


def _batch(header: BatchHeader, body: memoryview) -> ExaminedBatch:
    is_sound = checksum(body[header.position + _COVERED_FROM : header.end]) == header.crc
    return ExaminedBatch(header._replace(position=HEADER_BYTES + header.position), is_sound)


def _starts(report: Examination) -> list[int]:
    if report.times is not None:
        return [block.position for block in report.times.blocks]
    return [entry.position for entry in report.index.entries] if report.index else []


def _check_ends(report: Examination, data: Buffer) -> None:
    end = len(data) - FOOTER_BYTES
    crc = checksum(memoryview(data)[HEADER_BYTES:end])
    if report.footer is not None and report.footer.crc != crc:
        text = f"the footer says CRC-32C {report.footer.crc:#010x}, the batches have {crc:#010x}"
        report.faults.append(SegmentFault(SEGMENT_ENDING, end, text))
    count = sum(batch.header.record_count for batch in report.batches)
    if report.header is not None and report.header.message_count != count:
        text = f"the header says {report.header.message_count} records, the batches hold {count}"
        report.faults.append(SegmentFault(SEGMENT_ENDING, _COUNT_AT, text))


def _compare_times(
    report: Examination, times: Times, segment: Buffer | None, index: Buffer | None
) -> None:
    if index is not None:
        _try(report, INDEX_ENDING, 0, lambda: times.check_index(index, "the index"))
    if segment is None:
        return
    size = len(segment)
    _try(
        report,
        SEGMENT_ENDING,
        0,
        lambda: times.check_segment(segment, segment, size, "the segment"),
    )
    ends = [block.position for block in times.blocks[1:]] + [times.size - FOOTER_BYTES]
    view = memoryview(segment)
    for block, end in zip(times.blocks, ends, strict=False):
        if checksum(view[block.position : end]) != block.crc:
            text = f"the {end - block.position} bytes from here on are not what was written"
            report.faults.append(SegmentFault(SEGMENT_ENDING, block.position, text))


def _compare_index(report: Examination, index: Index) -> None:
    starts = {batch.header.position: batch.header.base_offset for batch in report.batches}
    for number, (offset, position) in enumerate(index.entries):
        if starts.get(position) != offset:
            text = f"at byte {position} of the segment no batch with offset {offset} begins"
            at = INDEX_HEADER_BYTES + number * _ENTRY_BYTES
            report.faults.append(SegmentFault(INDEX_ENDING, at, text))
