"""Snappy as Kafka's clients use it: raw, or in the blocks of Java's snappy-java ("xerial").

header: 82 'SNAPPY' 00, version (4), lowest compatible version (4)
then for each block: its length (4), and the block as raw snappy
"""

from __future__ import annotations

from struct import Struct

MAGIC = b"\x82SNAPPY\x00"
HEADER = MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
# The block size of snappy-java, so that no reader's buffer is too small.
BLOCK_SIZE = 32 * 1024
# A three-byte copy yields at most 64 bytes, and no element of the format yields more.
_MAX_RATIO = 22

_LENGTH = Struct(">i")


def is_framed(data: memoryview) -> bool:
    """Return whether the data uses xerial's framing rather than raw snappy."""
    return data[: len(MAGIC)] == MAGIC and len(data) >= len(HEADER)


def blocks(data: memoryview) -> list[memoryview]:
    """Split framed data into its raw blocks.

    Raises:
        ValueError: a block is cut off.
    """
    pieces = []
    at = len(HEADER)
    while at < len(data):
        # Java's reader accepts concatenated framed streams, so headers may recur.
        if is_framed(data[at:]):
            at += len(HEADER)
            continue
        if len(data) - at < _LENGTH.size:
            raise ValueError("a block's length is cut off")
        (size,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        if size <= 0 or size > len(data) - at:
            raise ValueError("a block is cut off")
        pieces.append(data[at : at + size])
        at += size
    return pieces


def read_size(block: memoryview) -> int:
    """Read the decompressed size that a raw block states.

    Raises:
        ValueError: there is no such number, or no block of this length can expand so far.
    """
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if size > _MAX_RATIO * len(block):
                raise ValueError(f"{len(block)} bytes cannot become {size}")
            return size
    raise ValueError("its size is not a varint")
