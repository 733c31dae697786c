r"""The `.index` file of a segment: where to start reading for an offset, big-endian.

    header   0 "IDX\0" (4)   4 version (2)   6 entry count (4)   10 interval (4)   14 reserved (2)
    entry    0 offset (8)   8 position (4)

An entry contains the base offset of a batch and its position, counted from the start of the segment
file. The first batch has an entry; further entries follow after `interval` messages. The file has
no checksum of its own: the `.times` file contains it.
"""

from __future__ import annotations

from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from rookery.errors import Corrupt
from rookery.formats.segment import HEADER_BYTES
from rookery.records.batches import BatchHeader
from rookery.records.kernel import Buffer

MAGIC: Final = b"IDX\0"
VERSION: Final = 1
INDEX_HEADER_BYTES: Final = 16
DEFAULT_INTERVAL: Final = 100
"""Messages between two entries, as in the format's first implementation."""
DEFAULT_INTERVAL_BYTES: Final = 64 * 1024
"""Bytes after which there is an entry in any case, so that large records can be found too."""

_HEADER: Final = Struct(">4sHiiH")
_ENTRY: Final = Struct(">qi")


class IndexEntry(NamedTuple):
    """A batch in the index: its base offset, and its position in the segment file."""

    offset: int
    position: int


class Index(NamedTuple):
    """The contents of an index file."""

    interval: int
    entries: list[IndexEntry]

    def pack(self) -> bytes:
        """Write the file."""
        head = _HEADER.pack(MAGIC, VERSION, len(self.entries), self.interval, 0)
        return head + b"".join(_ENTRY.pack(*entry) for entry in self.entries)


class IndexBuilder:
    """Chooses the batches that get an entry."""

    def __init__(
        self, interval: int = DEFAULT_INTERVAL, interval_bytes: int = DEFAULT_INTERVAL_BYTES
    ) -> None:
        """Start without entries.

        Args:
            interval: messages after which the next batch gets an entry.
            interval_bytes: bytes after which it gets one even if there are fewer messages.
        """
        if not 1 <= interval < 1 << 31 or interval_bytes < 1:
            raise ValueError(f"index intervals {interval} and {interval_bytes} must be above 0")
        self.index = Index(interval, [])
        self._interval_bytes = interval_bytes
        self._messages = 0

    def add(self, header: BatchHeader, position: int) -> bool:
        """Add the next batch, which is at this position; return whether it got an entry."""
        entries = self.index.entries
        is_due = (
            not entries
            or self._messages >= self.index.interval
            or position - entries[-1].position >= self._interval_bytes
        )
        if is_due:
            entries.append(IndexEntry(header.base_offset, position))
            self._messages = 0
        self._messages += header.record_count
        return is_due


def parse_index(data: Buffer, name: str = "index") -> Index:
    """Read an index file.

    Raises:
        Corrupt: this version cannot read it; the text begins with the name.
    """
    if len(data) < INDEX_HEADER_BYTES:
        raise Corrupt(f"{name}: ends after {len(data)} bytes, within its header")
    magic, version, count, interval, reserved = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise Corrupt(f"{name}: begins with {magic!r}, not with {MAGIC!r}; it is no index")
    if version != VERSION:
        raise Corrupt(f"{name}: index version {version}; this Rookery reads {VERSION} only")
    if reserved or interval < 0:
        raise Corrupt(f"{name}: interval {interval} is below 0, or reserved {reserved} is not 0")
    if count < 0 or len(data) != INDEX_HEADER_BYTES + count * _ENTRY.size:
        raise Corrupt(f"{name}: {len(data)} bytes are not what {count} entries take up")
    entries = [
        IndexEntry(*row) for row in _ENTRY.iter_unpack(memoryview(data)[INDEX_HEADER_BYTES:])
    ]
    _check_order(entries, name)
    return Index(interval, entries)


def _check_order(entries: list[IndexEntry], name: str) -> None:
    if entries and (entries[0].offset < 0 or entries[0].position < HEADER_BYTES):
        raise Corrupt(f"{name}: its first entry {tuple(entries[0])} is outside of a segment")
    for one, other in pairwise(entries):
        if one.offset >= other.offset or one.position >= other.position:
            raise Corrupt(f"{name}: entry {tuple(other)} is out of order after {tuple(one)}")
