"""Finding the blocks of a segment by offset and by time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import Corrupt
from rookery.formats.layout import BlockSpan, SegmentBlock, SegmentLayout
from rookery.formats.segment import (
    Index,
    SegmentFooter,
    SegmentHeader,
    parse_footer,
    parse_header,
    parse_index,
)
from rookery.formats.segmentwriter import SegmentWriter
from rookery.formats.times import parse_times
from rookery.records.batches import BatchHeader
from rookery.records.crc import checksum
from rookery.records.policy import rewrite
from rookery.records.scan import corrupt
from tests.formats import byhand, golden

WHOLE = 1 << 31


def _timed() -> SegmentLayout:
    return SegmentLayout.from_times(parse_times(golden.TIMES), "a.kfs")


def _indexed(segment: bytes = golden.DENSE, index: bytes = golden.DENSE_INDEX) -> SegmentLayout:
    header, footer = parse_header(segment), parse_footer(segment)
    return SegmentLayout.from_index(parse_index(index), header, footer, len(segment), "a.kfs")


def _read(
    layout: SegmentLayout, data: bytes | bytearray, span: BlockSpan | None
) -> list[BatchHeader]:
    assert span is not None
    return _open(layout, span, data[span.position : span.position + span.size])


def _open(
    layout: SegmentLayout, span: BlockSpan, data: bytes | bytearray, *, is_thorough: bool = False
) -> list[BatchHeader]:
    scanned = rewrite(data, layout.expect(span, is_thorough=is_thorough))
    if scanned.damage is not None:
        raise corrupt(scanned.damage, layout.name)
    return scanned.headers


@pytest.mark.parametrize(
    ("offset", "bases"),
    [(0, [1000, 1002]), (1000, [1000, 1002]), (1004, [1000, 1002]), (1008, [1000, 1002]),
     (1009, [1009]), (1012, [1009])],
)  # fmt: skip
def test_an_offset_is_found_in_its_block(offset: int, bases: list[int]) -> None:
    layout = _timed()

    headers = _read(layout, golden.SEGMENT, layout.find(offset, 1))

    assert [header.base_offset for header in headers] == bases


def test_further_blocks_are_included_if_they_fit() -> None:
    layout = _timed()
    size = len(golden.SEGMENT) - 48

    whole, less = layout.find(1000, size), layout.find(1000, size - 1)

    assert whole == (0, 2, 32, size)
    assert less is not None
    assert (less.stop, layout.next_offset(less)) == (1, 1009)
    assert layout.next_offset(whole) == 1013
    assert len(_read(layout, golden.SEGMENT, whole)) == 3


@pytest.mark.parametrize(
    ("time", "first"), [(-1, 0), (4000, 0), (6002, 0), (6003, None), (10**15, None)]
)
def test_time_is_found_in_the_first_block_that_reaches_it(time: int, first: int | None) -> None:
    span = _timed().find_time(time, 1)

    assert (None if span is None else span.first) == first


def test_times_are_searched_by_the_maximum_of_each_block() -> None:
    writer = SegmentWriter(0, interval=1)
    for offset, time in enumerate((50, 20, 70, 60)):
        writer.add(byhand.batch(offset, [b"x"], time))
    files = writer.finish(golden.ORIGIN, 3, 1)
    layout = SegmentLayout.from_times(parse_times(files.times), "a.kfs")

    spans = [layout.find_time(time, 1) for time in (50, 51, 70)]
    behind = [layout.find_time(time, 1, start=1) for time in (20, 50, 71)]

    assert [span and span.first for span in spans] == [0, 2, 2]
    assert [span and span.first for span in behind] == [1, 2, None]


def test_without_a_times_file_any_block_may_hold_any_time() -> None:
    assert _indexed().find_time(10**15, 1) == _indexed().find(0, 1)


def test_empty_segment_has_no_blocks() -> None:
    files = SegmentWriter(5).finish(golden.ORIGIN, 9, 1)
    data = b"".join(files.parts)
    timed = SegmentLayout.from_times(parse_times(files.times), "a.kfs")
    indexed = _indexed(data, files.index)

    for layout in (timed, indexed):
        assert layout.find(5, 100) is None
        assert layout.find_time(0, 100) is None
        assert layout.open_whole(data).batches == []


def test_without_a_times_file_leader_epochs_come_from_the_state() -> None:
    layout = _indexed()
    damaged = bytearray(golden.DENSE)
    damaged[golden.POSITIONS[1] + 15] ^= 1
    span = layout.span(0, WHOLE)

    assert len(_read(layout, damaged, span)) == 3
    expected = layout.expect(span, lambda offset: {1000: 3, 1002: 3, 1005: 5}[offset])
    assert rewrite(golden.DENSE[32:-16], expected).damage is None
    assert rewrite(damaged[32:-16], expected).damage is not None
    with pytest.raises(Corrupt):
        layout.open_whole(damaged)


@pytest.mark.parametrize("mask", [0x01, 0x10, 0x80, 0xFF])
def test_damaged_index_never_skips_a_record(mask: int) -> None:
    for at in range(len(golden.DENSE_INDEX)):
        damaged = bytearray(golden.DENSE_INDEX)
        damaged[at] ^= mask
        try:
            layout = _indexed(index=bytes(damaged))
            read = [_read(layout, golden.DENSE, layout.find(n, 1)) for n in range(1000, 1006)]
        except Corrupt:
            continue
        assert 10 <= at < 14, "only the interval, which nothing depends on, may go unseen"
        for offset, headers in zip(range(1000, 1006), read, strict=True):
            assert any(header.base_offset <= offset <= header.last_offset for header in headers)


def test_with_gaps_each_block_must_start_at_its_index_entry() -> None:
    layout = _indexed(golden.SEGMENT, golden.INDEX)
    assert not layout.is_dense
    _read(layout, golden.SEGMENT, layout.span(0, WHOLE))
    damaged = bytearray(golden.SEGMENT)
    damaged[golden.POSITIONS[2] + 7] ^= 0x02  # offset 1009 becomes 1011, which is free, too

    with pytest.raises(Corrupt, match="offset 1011 where 1009 comes next"):
        _read(layout, damaged, layout.span(1, 1))


def test_index_entry_inside_a_batch_is_refused() -> None:
    layout = _indexed(golden.SEGMENT, byhand.index(3, [(1000, 32), (1002, 40)]))

    with pytest.raises(Corrupt, match="byte 32, offset 1000: a batch ends"):
        _read(layout, golden.SEGMENT, layout.span(0, WHOLE))


def test_truncated_range_is_refused() -> None:
    layout = _timed()
    span = layout.span(0, 1)

    with pytest.raises(Corrupt, match="ends 1 bytes too soon"):
        _open(layout, span, golden.SEGMENT[32 : 32 + span.size - 1])


def test_a_first_batch_without_an_entry_is_found() -> None:
    for index in (byhand.index(100, []), byhand.index(100, [(1005, golden.POSITIONS[2])])):
        layout = _indexed(index=index)

        headers = _read(layout, golden.DENSE, layout.find(1002, 1))

        assert headers[0].base_offset == 1000


def test_first_batch_after_a_gap_is_found_without_an_entry() -> None:
    layout = _indexed(golden.SEGMENT[:15] + b"\xe7" + golden.SEGMENT[16:], byhand.index(9, []))

    assert layout.header.base_offset == 999
    assert _read(layout, golden.SEGMENT, layout.find(999, 1))[0].base_offset == 1000


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([(999, 32)], "begins before its base offset 1000"),
        ([(1000, 32), (1006, 99)], "out of order after"),
        ([(1000, 32), (1005, 100_000)], "out of order after"),
    ],
)
def test_an_index_of_another_segment_is_refused(entries: list[tuple[int, int]], words: str) -> None:
    with pytest.raises(Corrupt, match=words):
        _indexed(index=byhand.index(100, entries))


def test_file_too_short_for_header_and_footer_is_refused() -> None:
    header, footer = parse_header(golden.DENSE), parse_footer(golden.DENSE)

    with pytest.raises(Corrupt):
        SegmentLayout.from_index(parse_index(golden.DENSE_INDEX), header, footer, 40, "a.kfs")


def test_data_of_another_segment_is_refused() -> None:
    with pytest.raises(Corrupt, match="times file"):
        _timed().open_whole(golden.DENSE)
    with pytest.raises(Corrupt, match="has changed since"):
        _indexed().open_whole(golden.SEGMENT)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), min_size=1, max_size=10),
    st.integers(1, 6),
    st.integers(1, 2000),
)
def test_every_record_is_reachable_from_every_offset(
    steps: list[tuple[int, int]], interval: int, max_bytes: int
) -> None:
    writer = SegmentWriter(0, interval=interval)
    for gap, count in steps:
        writer.add(byhand.batch(writer.next_offset + gap, [b"x"] * count, 1))
    last = writer.next_offset + 2
    files = writer.finish(golden.ORIGIN, last, 1)
    data = b"".join(files.parts)
    bases = [batch.base for batch in byhand.read_segment(data).batches]
    timed = SegmentLayout.from_times(parse_times(files.times), "a.kfs")

    for layout in (timed, _indexed(data, files.index)):
        for offset in range(last + 1):
            first = next((n for n in bases if n >= offset), None)
            seen, at = [], offset
            while at <= last:
                span = layout.find(at, max_bytes)
                seen += [header.base_offset for header in _read(layout, data, span)]
                assert span is not None
                at = layout.next_offset(span)
            assert first is None or first in seen
            assert seen == bases[len(bases) - len(seen) :]
        assert [batch.base_offset for batch in layout.open_whole(data).batches] == bases


def test_layout_from_an_index_has_no_times() -> None:
    layout = _indexed()

    assert layout.times is None
    assert layout.is_dense
    assert {block.crc for block in layout.blocks} == {None}
    assert parse_index(golden.DENSE_INDEX) == Index(100, parse_index(golden.DENSE_INDEX).entries)


def test_batch_damaged_before_it_was_written_is_found_by_a_full_check() -> None:
    bad = bytearray(byhand.batch(0, [b"value"], 50))
    bad[-2] ^= 1
    ends = (SegmentHeader(0, 1, 0), SegmentFooter(0, 0))
    layout = SegmentLayout("a.kfs", ends, [SegmentBlock(0, 32, len(bad), 50, checksum(bad))])
    span = layout.find(0, len(bad))
    assert span is not None

    assert [header.base_offset for header in _open(layout, span, bad)] == [0]
    with pytest.raises(Corrupt, match="CRC"):
        _open(layout, span, bad, is_thorough=True)
