"""CRC-32C of batches, and the arithmetic that changes a few bytes without reading the rest.

A CRC is linear: the CRCs of two texts of one length differ by what the differing bytes alone
contribute, carried past the bytes that follow.
"""

from __future__ import annotations

from crc32c import crc32c

from rookery.records.kernel import Buffer, shift


def checksum(data: Buffer, crc: int = 0) -> int:
    """Compute the CRC-32C of the data, going on from the CRC of what came before it."""
    return crc32c(data, crc)


def combine(first: int, second: int, second_length: int) -> int:
    """Compute the CRC of two texts joined, from their CRCs and the second one's length."""
    return shift(first, second_length) ^ second


def replace(crc: int, old: Buffer, new: Buffer, following: int) -> int:
    """Compute the CRC after `old` became `new`, with that many bytes following it."""
    if len(old) != len(new):
        raise ValueError(f"{len(old)} bytes cannot be replaced by {len(new)}")
    return crc ^ shift(crc32c(old) ^ crc32c(new), following)
