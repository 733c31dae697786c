"""The format of `.times` files."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.errors import Corrupt
from rookery.formats.sections import MUST_KNOW, pack_sections, parse_sections
from rookery.formats.times import (
    SegmentAbort,
    SegmentEpoch,
    SegmentOrigin,
    parse_times,
)
from tests.formats import byhand, golden


def test_the_golden_times_file_is_read_and_written() -> None:
    times = parse_times(golden.TIMES)

    assert times.origin == golden.ORIGIN
    assert times.header.base_offset == 1000
    assert times.footer.last_offset == 1012
    assert times.size == len(golden.SEGMENT)
    assert [block[:3] for block in times.blocks] == [
        (1000, 32, 6002),
        (1009, golden.POSITIONS[2], 4000),
    ]
    assert times.aborted == [golden.ABORTED]
    assert times.epochs == list(golden.EPOCHS)
    assert times.pack() == golden.TIMES


@pytest.mark.parametrize("mask", [0x01, 0x10, 0x80, 0xFF])
def test_every_flipped_byte_is_refused(mask: int) -> None:
    for at in range(len(golden.TIMES)):
        damaged = bytearray(golden.TIMES)
        damaged[at] ^= mask
        with pytest.raises(Corrupt):
            parse_times(damaged)


@pytest.mark.parametrize("size", range(len(golden.TIMES)))
def test_a_truncated_file_is_refused(size: int) -> None:
    with pytest.raises(Corrupt):
        parse_times(golden.TIMES[:size])


def test_contents_under_a_valid_checksum_are_accepted_or_corrupt() -> None:
    refused = 0
    for number, section in enumerate(golden.SECTIONS):
        for at in range(len(section)):
            changed = bytearray(section)
            changed[at] ^= 0x80
            sections = [*golden.SECTIONS[:number], changed, *golden.SECTIONS[number + 1 :]]
            try:
                parse_times(byhand.times([bytes(part) for part in sections]))
            except Corrupt:
                refused += 1
    assert refused


@given(st.binary(max_size=100))
def test_random_bytes_are_refused(noise: bytes) -> None:
    with pytest.raises(Corrupt):
        parse_times(noise)


def test_sections_of_later_versions_are_skipped() -> None:
    data = byhand.times([byhand.section(99, b"whatever"), *golden.SECTIONS])

    assert parse_times(data) == parse_times(golden.TIMES)


def test_unknown_mandatory_sections_are_refused() -> None:
    data = byhand.times([*golden.SECTIONS, byhand.section(MUST_KNOW | 1, b"")])

    with pytest.raises(Corrupt, match="section 0x8001 is not known to this Rookery"):
        parse_times(data)


def test_transactions_and_epochs_are_optional() -> None:
    times = parse_times(byhand.times(golden.SECTIONS[:3]))

    assert (times.aborted, times.epochs) == ([], [])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (byhand.times(golden.SECTIONS, version=2), "format version 2; this Rookery reads 1 only"),
        (b"RKTIMEZ\0" + golden.TIMES[8:], "begins with b'RKTIMEZ"),
        (golden.TIMES + b"\0", "its header says"),
        (golden.TIMES[:-1] + b"\0", "is damaged"),
        (byhand.times(golden.SECTIONS[1:]), r"no section 1 \(origin\)"),
        (byhand.times([*golden.SECTIONS[:1], *golden.SECTIONS[2:]]), "no section 2"),
        (byhand.times(golden.SECTIONS[:2]), "no section 3"),
        (byhand.times([*golden.SECTIONS, golden.SECTIONS[0]]), "section 1 occurs twice"),
        (byhand.times([*golden.SECTIONS, struct.pack(">HHI", 9, 0, 1)]), "cannot be 1 bytes long"),
        (byhand.times([*golden.SECTIONS, struct.pack(">HHI", 9, 1, 0)]), "cannot be 0 bytes long"),
        (byhand.times([*golden.SECTIONS, b"\0"]), "is cut off"),
        (byhand.times([*golden.SECTIONS[:4], byhand.section(5, b"x")]), "not rows of 12"),
        (byhand.times([byhand.section(2, b"x"), *golden.SECTIONS[2:], golden.SECTIONS[0]]),
         r"section 2 \(segment\) has 1 bytes"),
        (byhand.times([byhand.section(1, b"x"), *golden.SECTIONS[1:]]), "too short"),
        (byhand.times([byhand.section(1, bytes(32) + b"\0\5abc"), *golden.SECTIONS[1:]]),
         "a name in its section 1"),
        (byhand.times([byhand.section(1, bytes(32) + b"\0\1\xff\0\0"), *golden.SECTIONS[1:]]),
         "not UTF-8"),
        (byhand.times([byhand.section(1, bytes(37)), *golden.SECTIONS[1:]]), "1 bytes too long"),
    ],
)  # fmt: skip
def test_fault_in_a_times_file_is_named(data: bytes, words: str) -> None:
    with pytest.raises(Corrupt, match=f"x.times: .*{words}"):
        parse_times(data, "x.times")


def test_bytes_after_the_last_section_are_refused() -> None:
    sections = b"".join(golden.SECTIONS) + b"stray"
    data = b"RKTIMES\0" + struct.pack(">HHI", 1, 5, 20 + len(sections)) + sections
    data += struct.pack(">I", byhand.crc32c(data))

    with pytest.raises(Corrupt, match="5 bytes follow its last section"):
        parse_times(data)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([(1000, 33)], "not where the segment begins"),
        ([(999, 32)], "not where the segment begins"),
        ([], "not where the segment begins"),
        ([(1000, 32), (1000, 60)], "is out of order after"),
        ([(1000, 32), (1005, 32)], "is out of order after"),
        ([(1000, 32), (1013, 60)], "is out of order after"),
        ([(1000, 32), (1005, 100_000)], "is out of order after"),
    ],
)
def test_blocks_must_cover_the_segment(rows: list[tuple[int, int]], words: str) -> None:
    blocks = b"".join(struct.pack(">qiqI", *row, 0, 0) for row in rows)
    sections = [*golden.SECTIONS[:2], byhand.section(3, blocks), *golden.SECTIONS[3:]]

    with pytest.raises(Corrupt, match=words):
        parse_times(byhand.times(sections))


INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NAMES = st.text("abcXYZ019._-", min_size=1, max_size=249)
ORIGINS = st.builds(
    SegmentOrigin, NAMES, NAMES, st.binary(min_size=16, max_size=16), st.integers(0, (1 << 31) - 1),
    st.integers(1, (1 << 39) - 1), st.integers(0, (1 << 24) - 1),
)  # fmt: skip


@given(
    ORIGINS,
    st.lists(st.builds(SegmentAbort, INT64, INT64, INT64)),
    st.lists(st.builds(SegmentEpoch, st.integers(0, (1 << 31) - 1), INT64)),
)
def test_written_times_file_is_read_back(
    origin: SegmentOrigin, aborted: list[SegmentAbort], epochs: list[SegmentEpoch]
) -> None:
    times = replace(parse_times(golden.TIMES), origin=origin, aborted=aborted, epochs=epochs)

    assert parse_times(times.pack()) == times


def test_times_file_matches_its_segment_and_index() -> None:
    times = parse_times(golden.TIMES)

    times.check_segment(golden.SEGMENT[:32], golden.SEGMENT[-16:], len(golden.SEGMENT), "x.kfs")
    times.check_index(golden.INDEX, "x.index")


def test_every_flipped_byte_of_header_or_footer_is_refused() -> None:
    times = parse_times(golden.TIMES)
    size = len(golden.SEGMENT)
    for at in (*range(32), *range(size - 16, size)):
        damaged = bytearray(golden.SEGMENT)
        damaged[at] ^= 0x01
        with pytest.raises(Corrupt, match=r"x.kfs: its (header|footer) is not"):
            times.check_segment(damaged, damaged, size, "x.kfs")
    with pytest.raises(Corrupt, match="its times file says"):
        times.check_segment(golden.SEGMENT, golden.SEGMENT, size - 1, "x.kfs")


def test_every_flipped_byte_of_the_index_is_refused() -> None:
    times = parse_times(golden.TIMES)
    for at in range(len(golden.INDEX)):
        damaged = bytearray(golden.INDEX)
        damaged[at] ^= 0x01
        with pytest.raises(Corrupt, match=r"x\.index: its CRC-32C"):
            times.check_index(damaged, "x.index")


def test_a_copied_or_renamed_file_is_recognised() -> None:
    times = parse_times(golden.TIMES)
    right = "default/birds/2/segment-00000000000000001000"

    times.check_key(f"{right}.times")
    times.check_key(f"{right}-7-9.kfs")
    for wrong in ("default/birds/3/segment-00000000000000001000.times",
                  "default/bards/2/segment-00000000000000001000.times",
                  "default/birds/2/segment-00000000000000001001.times",
                  "stray.times"):  # fmt: skip
        with pytest.raises(Corrupt, match="copied or renamed"):
            times.check_key(wrong)


@given(st.dictionaries(st.integers(0, 0x7FFF), st.binary(max_size=50), max_size=5))
def test_sections_are_read_back(sections: dict[int, bytes]) -> None:
    data = pack_sections(b"12345678", 3, sections)

    parsed = parse_sections(data, b"12345678", 3, frozenset(range(100)), "x")

    assert parsed == {kind: contents for kind, contents in sections.items() if kind < 100}
