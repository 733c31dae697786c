"""The outline of a zstd frame (RFC 8878): block boundaries, without decompressing.

The library decompresses all its input without a limit on the output. No block yields more than 128
KiB, so a caller that knows the block boundaries can stop between two blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

MAGIC = 0xFD2FB528
MAX_BLOCK = 128 * 1024
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_RAW, _RLE, _COMPRESSED = 0, 1, 2


class FrameStep(NamedTuple):
    """A range of input that ends with a block, and its maximum output size."""

    end: int
    most: int


class Frame(NamedTuple):
    """The positions of a frame's parts; the window is the memory that the decompressor needs."""

    begin: int
    blocks: int
    window: int
    content_size: int | None
    has_checksum: bool


def skippable(data: memoryview, at: int) -> int:
    """Return the length of the skippable frame there, or 0 if there is none."""
    if _number(data, at, 4) not in _SKIPPABLE:
        return 0
    size = 8 + _number(data, at + 4, 4)
    if size > len(data) - at:
        raise ValueError("a skippable frame is cut off")
    return size


def frame(data: memoryview, at: int) -> Frame:
    """Read the header of the frame that begins there."""
    if _number(data, at, 4) != MAGIC:
        raise ValueError("this is not a zstd frame")
    flags = _number(data, at + 4, 1)
    is_single = flags >> 5 & 1
    begin, at = at, at + 5
    window = 0
    if not is_single:
        window = _window(_number(data, at, 1))
        at += 1
    at += (0, 1, 2, 4)[flags & 3]
    size_bytes = (is_single, 2, 4, 8)[flags >> 6]
    content_size = None
    if size_bytes:
        content_size = _number(data, at, size_bytes) + (256 if size_bytes == 2 else 0)
    at += size_bytes
    if is_single:
        window = content_size or 0
    return Frame(begin, at, window, content_size, bool(flags & 4))


def steps(data: memoryview, within: Frame, limit: int) -> Iterator[FrameStep]:
    """Yield the blocks of a frame; the checksum belongs to the last."""
    at = within.blocks
    is_last = 0
    # Empty blocks are legal; without a limit, a frame of empty blocks would be parsed for too long.
    allowed = 1024 + len(data) // 64 + limit // MAX_BLOCK
    while not is_last:
        allowed -= 1
        if allowed < 0:
            raise ValueError("it has too many blocks for its length")
        head = _number(data, at, 3)
        is_last, kind, size = head & 1, head >> 1 & 3, head >> 3
        if kind > _COMPRESSED or size > MAX_BLOCK:
            raise ValueError("a block's header makes no sense")
        at += 3 + (1 if kind == _RLE else size)
        if is_last and within.has_checksum:
            at += 4
        if at > len(data):
            raise ValueError("a block is cut off")
        yield FrameStep(at, MAX_BLOCK if kind == _COMPRESSED else size)


def _window(descriptor: int) -> int:
    base = 1 << (10 + (descriptor >> 3))
    return base + base // 8 * (descriptor & 7)


def _number(data: memoryview, at: int, size: int) -> int:
    if size > len(data) - at:
        raise ValueError("it is cut off")
    return int.from_bytes(data[at : at + size], "little")
