"""The format of `.kfs` files."""

from __future__ import annotations

import pytest

from rookery.errors import Corrupt
from rookery.formats.segment import (
    SegmentFooter,
    SegmentHeader,
    parse_footer,
    parse_header,
    verify_segment,
)
from rookery.records import recordcodec
from tests.formats import byhand, golden


def test_golden_segment_has_fixed_bytes() -> None:
    # The tables, byte for byte; whatever changes these lines breaks every reader there is.
    assert golden.SEGMENT[:32].hex(" ", 4) == (
        "4b414653 00010000 00000000 000003e8 00000006 0000019b 76daa800 00000000"
    )
    assert golden.SEGMENT[-12:].hex(" ", 4) == "00000000 000003f4 454e4421"
    assert golden.SEGMENT[32:53].hex() == (
        "00000000000003e8" + "0000004a" + "00000003" + "02" + golden.BATCHES[0][17:21].hex()
    )
    assert byhand.crc32c(b"123456789") == 0xE3069283


def test_the_golden_segment_is_read() -> None:
    segment = verify_segment(golden.SEGMENT)

    assert segment.header == SegmentHeader(1000, 6, 1_767_225_600_000)
    assert segment.footer.last_offset == 1012
    assert [(batch.base_offset, batch.last_offset) for batch in segment.batches] == [
        (1000, 1001),
        (1002, 1004),
        (1009, 1010),
    ]
    values = [
        record.value
        for header in segment.batches
        for record in recordcodec.read(segment.body, header)
    ]
    assert values == [b"jackdaw", b"rook", b"crow", b"raven", b"magpie", b"jay"]


def test_header_and_footer_match_the_documented_tables() -> None:
    segment = verify_segment(golden.SEGMENT)

    assert segment.header.pack() == golden.SEGMENT[:32]
    assert segment.footer.pack() == golden.SEGMENT[-16:]


def test_segment_can_be_empty() -> None:
    segment = verify_segment(byhand.segment(5, 9, 0, 1, []))

    assert segment.batches == []
    assert segment.footer == SegmentFooter(0, 9)


def _may_be_wrong(at: int) -> bool:
    """Bytes that say how far a segment goes and when it was made: nothing covers them alone."""
    size = len(golden.SEGMENT)
    return 8 <= at < 28 or size - 12 <= at < size - 4


@pytest.mark.parametrize("mask", [0x01, 0x10, 0x80, 0xFF])
def test_flipped_byte_of_header_or_footer_never_changes_the_served_body(mask: int) -> None:
    body = golden.SEGMENT[32:-16]
    unseen = []
    for at in (*range(33), *range(len(golden.SEGMENT) - 17, len(golden.SEGMENT))):
        damaged = bytearray(golden.SEGMENT)
        damaged[at] ^= mask
        try:
            segment = verify_segment(damaged)
        except Corrupt:
            continue
        unseen.append(at)
        assert segment.body == body
    # All that passes is a wider range or another time; the times file knows those.
    assert all(map(_may_be_wrong, unseen))
    assert not any(16 <= at < 20 for at in unseen)


@pytest.mark.parametrize("size", range(len(golden.SEGMENT)))
def test_a_truncated_segment_is_refused(size: int) -> None:
    with pytest.raises(Corrupt):
        verify_segment(golden.SEGMENT[:size])


def test_surplus_bytes_are_refused() -> None:
    with pytest.raises(Corrupt, match="cut off"):
        verify_segment(golden.SEGMENT + b"\0")


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (0, b"KAFT", "begins with b'KAFT'"),
        (4, b"\0\2", "segment version 2; this Rookery reads 1 only"),
        (6, b"\0\1", "flags 0x1"),
        (28, b"\0\0\0\1", "reserved 0x1"),
        (8, b"\xff" * 8, "below 0"),
        (16, b"\xff" * 4, "below 0"),
        (16, b"\0\0\1\0", "256 records do not fit the offsets 1000 to 1012"),
        (16, b"\0\0\0\5", "holds 6 records, its header says 5"),
        (8, b"\0" * 6 + b"\x03\xe9", "offset 1000 where 1001 comes next"),
    ],
)
def test_fault_in_a_segment_is_named(at: int, value: bytes, words: str) -> None:
    damaged = bytearray(golden.SEGMENT)
    damaged[at : at + len(value)] = value

    with pytest.raises(Corrupt, match=f"a/b.kfs: .*{words}"):
        verify_segment(damaged, "a/b.kfs")


@pytest.mark.parametrize(
    ("batches", "last", "words"),
    [
        ([byhand.batch(4, [b"a"], 1), byhand.batch(4, [b"b"], 1)], 9, "offset 4 where 5"),
        ([byhand.batch(9, [b"a"], 1), byhand.batch(4, [b"b"], 1)], 9, "offset 4 where 10"),
        ([byhand.batch(3, [b"a"], 1)], 9, "offset 3 where 4"),
        ([byhand.batch(4, [b"a"], 1, width=7)], 9, "end at offset 11"),
        ([byhand.batch(4, [b"a"], 1)[:-1]], 9, "byte 32, offset 4: the batch is cut off"),
        ([b"x" * 70], 9, "byte 32, offset 4: its magic"),
    ],
)
def test_batches_must_be_valid_even_if_the_checksum_matches(
    batches: list[bytes], last: int, words: str
) -> None:
    with pytest.raises(Corrupt, match=words):
        verify_segment(byhand.segment(4, last, len(batches), 1, batches))


def test_batch_with_a_wrong_crc_is_refused_even_if_the_checksum_matches() -> None:
    batch = bytearray(byhand.batch(4, [b"abc"], 1))
    batch[-2] ^= 1

    with pytest.raises(Corrupt, match="CRC-32C does not match"):
        verify_segment(byhand.segment(4, 4, 1, 1, [bytes(batch)]))


@pytest.mark.parametrize("size", [0, 15, 31])
def test_missing_header_or_footer_is_refused(size: int) -> None:
    with pytest.raises(Corrupt, match=f"ends after {size} bytes"):
        parse_header(golden.SEGMENT[:size])


def test_footer_must_be_complete() -> None:
    with pytest.raises(Corrupt, match="15 bytes hold no footer"):
        parse_footer(golden.SEGMENT[-15:])
