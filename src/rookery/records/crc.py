"""CRC-32C of batches, and patching a CRC after a few bytes change without reading the rest.

A CRC is linear. The CRCs of two byte strings of equal length differ by the contribution of the
differing bytes, shifted past the bytes that follow.
"""

from __future__ import annotations

from crc32c import crc32c

from rookery.records.kernel import Buffer, shift


def checksum(data: Buffer, crc: int = 0) -> int:
    """Compute the CRC-32C of the data, continuing from the CRC of the bytes before it."""
    return crc32c(data, crc)


def combine(first: int, second: int, second_length: int) -> int:
    """Compute the CRC of two concatenated byte strings from their CRCs and the second's length."""
    return shift(first, second_length) ^ second


def replace(crc: int, old: Buffer, new: Buffer, following: int) -> int:
    """Compute the CRC after `old` is replaced by `new`, with the given number of bytes after it."""
    if len(old) != len(new):
        raise ValueError(f"{len(old)} bytes cannot be replaced by {len(new)}")
    return crc ^ shift(crc32c(old) ^ crc32c(new), following)
