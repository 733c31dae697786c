"""The contract of the partitioner's loops, kept by `_murmur.pyx` and `_murmur_twin.py` alike."""

from typing import TypeAlias

_Buffer: TypeAlias = bytes | bytearray | memoryview

def murmur2(data: _Buffer, /) -> int:
    """Return Kafka's 32-bit hash of a key, unsigned."""

def partitions(
    offsets: _Buffer, data: _Buffer, first: int, rows: int, is_large: bool, count: int, /
) -> bytearray:
    """Return the partition of each key among `count`, as int32: the same as Java's.

    Args:
        offsets: where each key begins in `data`, as Arrow has it: int32, or int64 if `is_large`.
        data: the keys' bytes.
        first: the first key's place in the offsets.
        rows: how many keys there are.
        is_large: whether the offsets have 64 bits.
        count: how many partitions there are.

    Raises:
        ValueError: the offsets lead out of the data, or a number is out of its range.
    """

def gather(groups: _Buffer, count: int, /) -> tuple[bytearray, list[int]]:
    """Return the rows, as int64, by group and within each in their order; and each group's size.

    Args:
        groups: the group of each row, as int32.
        count: how many groups there are.

    Raises:
        ValueError: a group is not within 0..count - 1.
    """
