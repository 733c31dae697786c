"""The subset of Protocol Buffers that etcd needs: integers, bytes and nested messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rookery.errors import ProtocolError

Value = int | bytes

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_MAX_SHIFT: Final = 63


def write(*fields: tuple[int, Value]) -> bytes:
    """Encode a message from field numbers and values; zero and empty values are omitted.

    A nested message is given as its bytes; use `present` for one that is present but empty.
    """
    return b"".join([present(number, value) for number, value in fields if value])


def present(number: int, value: Value) -> bytes:
    """Encode one field, even if its value is the default."""
    if isinstance(value, int):
        return _varint(number << 3 | _VARINT) + _varint(value)
    return b"".join((_varint(number << 3 | _BYTES), _varint(len(value)), value))


def read(data: bytes) -> Iterator[tuple[int, Value]]:
    """Decode the fields of a message, in order.

    Raises:
        ProtocolError: the bytes are truncated or not a message.
    """
    at, end = 0, len(data)
    while at < end:
        tag, at = _read_varint(data, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _read_varint(data, at)
            yield number, value
            continue
        size, at = _read_size(data, at, kind)
        if size > end - at:
            raise ProtocolError(f"field {number} of a message from etcd is cut off")
        yield number, data[at : at + size]
        at += size


def _read_size(data: bytes, at: int, kind: int) -> tuple[int, int]:
    if kind == _BYTES:
        return _read_varint(data, at)
    if kind == _FIXED64:
        return 8, at
    if kind == _FIXED32:
        return 4, at
    raise ProtocolError(f"a message from etcd has a field of kind {kind}, which does not exist")


def _varint(value: int) -> bytes:
    if value < 0x80:
        if value < 0:
            raise ValueError(f"{value} is negative: etcd's requests have no such number")
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    try:
        while (byte := data[at]) >= 0x80:
            value |= (byte & 0x7F) << shift
            shift += 7
            at += 1
            if shift > _MAX_SHIFT:
                raise ProtocolError("a number in a message from etcd is too long")
    except IndexError:
        raise ProtocolError("a number in a message from etcd is cut off") from None
    value |= byte << shift
    # Negative numbers are encoded as 64-bit two's complement.
    return (value - (1 << 64) if value >> 63 else value), at + 1
