"""The contract of the kernel, implemented by `_kernel.pyx` and `twins/kerneltwin.py`."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias, TypeVar

_Buffer: TypeAlias = bytes | bytearray | memoryview
_Row = TypeVar("_Row", bound=tuple[Any, ...])
_Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

RawHeader: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The 13 fields of a batch header in wire order, then the batch's position."""

RawRecord: TypeAlias = tuple[bytes | None, bytes | None, _Headers, int, int]
"""Key, value, headers, timestamp, offset."""

PATCH_FROM_BYTES: int
"""The size from which patching a CRC is cheaper than computing it again (measured)."""

def scan(data: _Buffer, rules: int, /) -> tuple[list[RawHeader], str, int]:
    """Parse and check the headers of all batches; also return the final fault and its position."""

def walk(data: _Buffer, header: RawHeader, /) -> tuple[int, int, int, int]:
    """Check every record; return min (except -1) and max time, its offset, and null keys."""

def decode(data: _Buffer, header: RawHeader, make: type[_Row], /) -> Iterator[_Row]:
    """Yield every record as an instance of a tuple class with the fields of `RawRecord`."""

def encode(records: Iterable[RawRecord], base_offset: int, /) -> tuple[bytes, int, int, int, int]:
    """Write records; return bytes, count, last offset delta, first and highest timestamp."""

def shift(crc: int, length: int, /) -> int:
    """Shift a CRC-32C past the given number of zero bytes."""
