"""The names and contents of the log's objects.

An entry's object is named by its number and repeats it, so that no object can be mistaken for
another. By the id, an appender whose response was lost recognises its own entry. The floor's
object holds the trimmed number (`floor`) and the number up to which objects were deleted
(`deleted`).

    entry   "RKE1"  crc-32c  number    losses    id, 16 bytes   data …
    floor   "RKF1"  crc-32c  floor     deleted

All fields are big-endian; losses are 4 bytes, other numbers 8. The CRC covers everything after it.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from rookery.cluster.port import MAX_ENTRY_BYTES
from rookery.errors import Corrupt
from rookery.records.crc import checksum

PREFIX: Final = "_rookery/log/"
FLOOR_KEY: Final = f"{PREFIX}floor"
ID_BYTES: Final = 16

_HEAD: Final = struct.Struct(">4sI")
_ENTRY: Final = struct.Struct(f">QI{ID_BYTES}s")
_FLOOR: Final = struct.Struct(">QQ")
_ENTRY_MAGIC: Final = b"RKE1"
_FLOOR_MAGIC: Final = b"RKF1"

MAX_OBJECT_BYTES: Final = _HEAD.size + _ENTRY.size + MAX_ENTRY_BYTES


class Item(NamedTuple):
    """The contents of an entry's object."""

    id: bytes
    data: bytes
    losses: int = 0
    """How many numbers its writer lost to others before it got this one (see `turns.py`)."""


class FloorLimits(NamedTuple):
    """The contents of the floor's object; both values only increase."""

    floor: int
    deleted: int


def entry_key(number: int) -> str:
    """Return the key of an entry's object; keys sort in the order of numbers."""
    return f"{PREFIX}{number:020}"


def write_item(number: int, item: Item) -> list[bytes]:
    """Encode the object of an entry, in parts."""
    fields = _ENTRY.pack(number, item.losses, item.id)
    crc = checksum(item.data, checksum(fields))
    return [_HEAD.pack(_ENTRY_MAGIC, crc) + fields, item.data]


def read_item(number: int, data: bytes) -> Item:
    """Decode the object of an entry, after checking its number."""
    key = entry_key(number)
    body = _check(key, data, _ENTRY_MAGIC, _ENTRY.size)
    if len(data) > MAX_OBJECT_BYTES:
        raise Corrupt(f"object {key!r} is larger than any entry: someone else wrote it")
    written, losses, id_ = _ENTRY.unpack_from(body)
    if written != number:
        raise Corrupt(f"object {key!r} holds entry {written}: someone has copied or renamed it")
    return Item(id_, bytes(body[_ENTRY.size :]), losses)


def write_limits(limits: FloorLimits) -> bytes:
    """Encode the object of the floor."""
    fields = _FLOOR.pack(*limits)
    return _HEAD.pack(_FLOOR_MAGIC, checksum(fields)) + fields


def read_limits(data: bytes) -> FloorLimits:
    """Decode the object of the floor."""
    body = _check(FLOOR_KEY, data, _FLOOR_MAGIC, _FLOOR.size)
    limits = FloorLimits(*_FLOOR.unpack_from(body))
    if len(body) != _FLOOR.size or limits.deleted > limits.floor:
        raise Corrupt(f"object {FLOOR_KEY!r} says {limits}, which cannot be: restore it")
    return limits


def _check(key: str, data: bytes, magic: bytes, size: int) -> memoryview:
    """Return the bytes after the CRC, if the CRC is right and the size sufficient."""
    if len(data) < _HEAD.size + size:
        raise Corrupt(f"object {key!r} is cut off after {len(data)} bytes")
    written, crc = _HEAD.unpack_from(data)
    body = memoryview(data)[_HEAD.size :]
    if written != magic:
        raise Corrupt(f"object {key!r} begins with {written!r}, not {magic!r}: another version?")
    if checksum(body) != crc:
        raise Corrupt(f"object {key!r}: its checksum is wrong, some of its bytes have changed")
    return body
