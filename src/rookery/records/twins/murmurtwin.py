"""The partitioner's loops in plain Python; `_murmur.pyi` is the contract."""

from __future__ import annotations

from array import array
from struct import iter_unpack
from typing import Final, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF


def murmur2(data: Buffer) -> int:
    size = len(data)
    h = (_SEED ^ size) & _MASK
    whole = size & ~3
    for (k,) in iter_unpack("<I", data[:whole]):
        k = (k * _M) & _MASK  # noqa: PLW2901 (the hash's own steps)
        k ^= k >> 24  # noqa: PLW2901
        h = ((h * _M) & _MASK) ^ ((k * _M) & _MASK)
    if size != whole:
        h ^= int.from_bytes(data[whole:], "little")
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)


def partitions(
    offsets: Buffer,
    data: Buffer,
    first: int,
    rows: int,
    is_large: bool,  # noqa: FBT001
    count: int,
) -> bytearray:
    if first < 0 or rows < 0 or count < 1:
        raise ValueError(f"{rows} keys from {first} on for {count} partitions")
    width = 8 if is_large else 4
    if (first + rows + 1) * width > len(offsets):
        raise ValueError(f"{first + rows} keys do not fit {len(offsets)} bytes of offsets")
    bounds = memoryview(offsets).cast("B")[: len(offsets) // width * width]
    places = bounds.cast("q" if is_large else "i")
    view = memoryview(data).cast("B")
    numbers = array("i", bytes(4 * rows))
    for row in range(rows):
        begin, end = places[first + row], places[first + row + 1]
        if not 0 <= begin <= end <= len(view):
            raise ValueError(f"key {row} is at {begin} to {end} of {len(view)} bytes")
        numbers[row] = (murmur2(view[begin:end]) & _POSITIVE) % count
    return bytearray(numbers.tobytes())


def gather(groups: Buffer, count: int) -> tuple[bytearray, list[int]]:
    if count < 0 or len(groups) % 4:
        raise ValueError(f"{len(groups)} bytes of rows for {count} groups")
    members: list[list[int]] = [[] for _ in range(count)]
    for row, group in enumerate(memoryview(groups).cast("B").cast("i")):
        if not 0 <= group < count:
            raise ValueError(f"row {row} is of group {group}, which is not within 0..{count - 1}")
        members[group].append(row)
    order = array("q", [row for some in members for row in some])
    return bytearray(order.tobytes()), [len(some) for some in members]
