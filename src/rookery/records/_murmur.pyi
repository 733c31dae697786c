"""The contract of the partitioner: `_murmur.pyx` and `twins/murmurtwin.py` implement it."""

from typing import TypeAlias

_Buffer: TypeAlias = bytes | bytearray | memoryview

def murmur2(data: _Buffer, /) -> int:
    """Return Kafka's 32-bit hash of a key, unsigned."""

def partitions(
    offsets: _Buffer, data: _Buffer, first: int, rows: int, is_large: bool, count: int, /
) -> bytearray:
    """Return the partition of each key among `count`, as int32: the same as Java's.

    Args:
        offsets: the start of each key in `data`, in Arrow's format: int32, or int64 if `is_large`.
        data: the keys' bytes.
        first: the first key's index in the offsets.
        rows: the number of keys.
        is_large: whether the offsets have 64 bits.
        count: the number of partitions.

    Raises:
        ValueError: the offsets are outside the data, or a number is out of its range.
    """

def gather(groups: _Buffer, count: int, /) -> tuple[bytearray, list[int]]:
    """Return the rows, as int64, grouped and in order within each group; and the group sizes.

    Args:
        groups: the group of each row, as int32.
        count: the number of groups.

    Raises:
        ValueError: a group is not within 0..count - 1.
    """
