"""The contract of the kernel, kept by `_kernel.pyx` and `_twin.py` alike."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias, TypeVar

_Buffer: TypeAlias = bytes | bytearray | memoryview
_Row = TypeVar("_Row", bound=tuple[Any, ...])
_Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

RawHeader: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The 13 fields of a batch header in the order of the wire, then where the batch begins."""

RawRecord: TypeAlias = tuple[bytes | None, bytes | None, _Headers, int, int]
"""Key, value, headers, timestamp, offset."""

PATCH_FROM_BYTES: int
"""From how many bytes on patching a CRC is cheaper than computing it again (measured)."""

def scan(data: _Buffer, rules: int, /) -> tuple[list[RawHeader], str, int]:
    """Read and check the headers of all batches; then the fault that ended it, and where."""

def walk(data: _Buffer, header: RawHeader, /) -> tuple[int, int, int, int]:
    """Check every record; tell lowest (but for -1) and highest time, its offset, null keys."""

def decode(data: _Buffer, header: RawHeader, make: type[_Row], /) -> Iterator[_Row]:
    """Yield every record as an instance of a tuple class with the fields of `RawRecord`."""

def encode(records: Iterable[RawRecord], base_offset: int, /) -> tuple[bytes, int, int, int, int]:
    """Write records; tell the bytes, count, last offset delta, first and highest timestamp."""

def shift(crc: int, length: int, /) -> int:
    """Carry a CRC-32C past that many zero bytes."""
