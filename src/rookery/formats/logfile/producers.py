"""A partition's `.snapshot`: the state of its producers at the offset in the file's name.

version 1 (2), CRC-32C of what follows (4), number of producers (4); for each: producer id (8),
epoch (2), last sequence (4), last offset (8), offset delta (4), timestamp (8), coordinator
epoch (4), first offset of the current transaction (8)
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from rookery.errors import Corrupt
from rookery.records.crc import checksum
from rookery.records.kernel import Buffer

VERSION: Final = 1
NO_OFFSET: Final = -1

_HEAD: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")


class ProducerEntry(NamedTuple):
    """A producer, and the last batch that it wrote to the partition."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    """The last offset of the last batch relative to its first."""
    timestamp: int
    coordinator_epoch: int = -1
    first_offset: int = NO_OFFSET
    """The first offset of its open transaction, -1 if it has none."""


def parse_producers(data: Buffer, name: str = "snapshot") -> list[ProducerEntry]:
    """Read a snapshot of producers.

    Raises:
        Corrupt: it is damaged, or of a newer version; the text begins with the name.
    """
    if len(data) < _HEAD.size + _COUNT.size:
        raise Corrupt(f"ends after {len(data)} bytes, within its header", name=name)
    version, crc = _HEAD.unpack_from(data)
    body = memoryview(data)[_HEAD.size :]
    if version != VERSION:
        reason = f"version {version} of a producer snapshot; only {VERSION} is known"
        raise Corrupt(reason, name=name)
    if checksum(body) != crc:
        raise Corrupt("its CRC-32C does not match", name=name)
    (count,) = _COUNT.unpack_from(body)
    rows = body[_COUNT.size :]
    if count < 0 or len(rows) != count * _ENTRY.size:
        raise Corrupt(f"{len(rows)} bytes are not what {count} producers take up", name=name)
    return [ProducerEntry(*row) for row in _ENTRY.iter_unpack(rows)]


def pack_producers(entries: Iterable[ProducerEntry]) -> bytes:
    """Write a snapshot of producers."""
    rows = [_ENTRY.pack(*entry) for entry in entries]
    body = _COUNT.pack(len(rows)) + b"".join(rows)
    return _HEAD.pack(VERSION, checksum(body)) + body
