"""CRC-32C and its arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.records import crc
from rookery.records.twins import kerneltwin

BYTES = st.binary(max_size=300)


def test_check_value_matches_the_standard() -> None:
    assert crc.checksum(b"123456789") == 0xE3069283


@given(BYTES, BYTES)
def test_checksum_can_be_continued(first: bytes, second: bytes) -> None:
    assert crc.checksum(second, crc.checksum(first)) == crc.checksum(first + second)


@given(BYTES, BYTES)
def test_two_checksums_are_combined(first: bytes, second: bytes) -> None:
    joined = crc.combine(crc.checksum(first), crc.checksum(second), len(second))
    assert joined == crc.checksum(first + second)


@given(BYTES, st.integers(0, 300), BYTES, BYTES)
def test_checksum_is_updated_for_replaced_bytes(
    before: bytes, size: int, filler: bytes, after: bytes
) -> None:
    old, new = bytes(size), (filler * 300 + bytes(300))[:size]
    value = crc.replace(crc.checksum(before + old + after), old, new, len(after))
    assert value == crc.checksum(before + new + after)


@pytest.mark.parametrize("size", [2**16, 2**20 - 1, 2**24 + 3])
def test_checksums_of_long_texts_are_combined(size: int) -> None:
    zeros = bytes(size)
    joined = crc.checksum(b"abc" + zeros)
    assert crc.combine(crc.checksum(b"abc"), crc.checksum(zeros), size) == joined
    assert kerneltwin.shift(crc.checksum(b"abc"), size) ^ crc.checksum(zeros) == joined


def test_replacement_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="3 bytes cannot be replaced by 4"):
        crc.replace(0, b"abc", b"abcd", 0)
