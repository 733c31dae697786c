"""Read and write Kafka's primitive values: fixed integers, varints, lengths.

`FrameReader` is the pure-Python cursor of the codec's twin, the headers and the record framings.
Every length is checked against what is left before anything is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from rookery.errors import ProtocolError

_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_F64: Final = struct.Struct(">d")

Buffer = bytes | bytearray | memoryview


def join_parts(parts: Sequence[Buffer]) -> Buffer:
    """Return the parts of a message as one buffer; a single part is not copied."""
    return parts[0] if len(parts) == 1 else b"".join(parts)


class FrameReader:
    """A cursor over a frame that never reads past its end."""

    __slots__ = ("elements", "end", "position", "view")

    def __init__(self, buffer: Buffer, position: int = 0) -> None:
        view = memoryview(buffer)
        self.view = view if view.format == "B" and view.ndim == 1 else view.cast("B")
        self.position = position
        self.end = len(self.view)
        self.elements = 2**62
        """How many array elements may still be read: bytes cost less than what is made of them."""

    @property
    def remaining(self) -> int:
        """How many bytes are left."""
        return self.end - self.position

    def skip(self, size: int) -> int:
        """Move over `size` bytes and return where they began."""
        start = self.position
        if size > self.end - start:
            raise ProtocolError(f"{size} bytes wanted, {self.end - start} left")
        self.position = start + size
        return start

    def take(self, size: int) -> memoryview:
        """Return a view of the next `size` bytes."""
        start = self.skip(size)
        return self.view[start : start + size]

    def i8(self) -> int:
        """Read a signed byte."""
        value = self.view[self.skip(1)]
        return value - 256 if value > 127 else value

    def i16(self) -> int:
        """Read two bytes, signed."""
        value: int = _I16.unpack_from(self.view, self.skip(2))[0]
        return value

    def i32(self) -> int:
        """Read four bytes, signed."""
        value: int = _I32.unpack_from(self.view, self.skip(4))[0]
        return value

    def i64(self) -> int:
        """Read eight bytes, signed."""
        value: int = _I64.unpack_from(self.view, self.skip(8))[0]
        return value

    def u16(self) -> int:
        """Read two bytes, unsigned."""
        value: int = _U16.unpack_from(self.view, self.skip(2))[0]
        return value

    def u32(self) -> int:
        """Read four bytes, unsigned."""
        value: int = _U32.unpack_from(self.view, self.skip(4))[0]
        return value

    def f64(self) -> float:
        """Read a double."""
        value: float = _F64.unpack_from(self.view, self.skip(8))[0]
        return value

    def uvarint(self) -> int:
        """Read an unsigned varint of at most 32 bits in at most five bytes."""
        value = shift = 0
        while True:
            byte = self.view[self.skip(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise ProtocolError("a varint runs over five bytes")
        if value > 0xFFFFFFFF:
            raise ProtocolError(f"a varint holds {value}, more than 32 bits")
        return value


def write_i16(out: bytearray, value: int) -> None:
    """Append two bytes, signed."""
    out += _I16.pack(value)


def write_i32(out: bytearray, value: int) -> None:
    """Append four bytes, signed."""
    out += _I32.pack(value)


def write_i64(out: bytearray, value: int) -> None:
    """Append eight bytes, signed."""
    out += _I64.pack(value)


def write_u16(out: bytearray, value: int) -> None:
    """Append two bytes, unsigned."""
    out += _U16.pack(value)


def write_u32(out: bytearray, value: int) -> None:
    """Append four bytes, unsigned."""
    out += _U32.pack(value)


def write_f64(out: bytearray, value: float) -> None:
    """Append a double."""
    out += _F64.pack(value)


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
