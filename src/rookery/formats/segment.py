r"""A segment's `.kfs` file, which has the batches, and its `.index` file, which finds them.

Both are big-endian. The `.kfs` file has the batches of one partition between header and footer:

    header   0 "KAFS" (4)   4 version (2)   6 flags (2)   8 base offset (8)   16 message count (4)
            20 created, Unix ms (8)   28 reserved (4)
    batches, one after the other, exactly as Kafka's format 2 has them
    footer   0 CRC-32C of all batches (4)   4 last offset (8)   12 "END!" (4)

Flags and reserved are 0. A segment covers all offsets from base to last, even where compaction has
removed records. The message count is the number of records that are present. Index positions are 31
bits wide, so a segment stays below 2 GiB.

The `.index` file:

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
from rookery.records.batches import BatchHeader
from rookery.records.crc import checksum
from rookery.records.expectation import Expectation, ExpectedExtent, OffsetRule
from rookery.records.kernel import Buffer
from rookery.records.policy import rewrite
from rookery.records.scan import corrupt

MAGIC: Final = b"KAFS"
FOOTER_MAGIC: Final = b"END!"
VERSION: Final = 1
HEADER_BYTES: Final = 32
FOOTER_BYTES: Final = 16
MAX_SEGMENT_BYTES: Final = (1 << 31) - 1
MAX_MESSAGES: Final = (1 << 31) - 1

_HEADER: Final = Struct(">4sHHqiqi")
_FOOTER: Final = Struct(">Iq4s")

INDEX_MAGIC: Final = b"IDX\0"
INDEX_VERSION: Final = 1
INDEX_HEADER_BYTES: Final = 16
DEFAULT_INTERVAL: Final = 100
"""Messages between two entries, as in the format's first implementation."""
DEFAULT_INTERVAL_BYTES: Final = 64 * 1024
"""Bytes after which there is an entry in any case, so that large records can be found too."""

_INDEX_HEADER: Final = Struct(">4sHiiH")
_ENTRY: Final = Struct(">qi")


class SegmentHeader(NamedTuple):
    """The header of a segment."""

    base_offset: int
    message_count: int
    created_ms: int

    def pack(self) -> bytes:
        """Write the 32 bytes."""
        return _HEADER.pack(MAGIC, VERSION, 0, *self, 0)


class SegmentFooter(NamedTuple):
    """The footer of a segment."""

    crc: int
    last_offset: int

    def pack(self) -> bytes:
        """Write the 16 bytes."""
        return _FOOTER.pack(*self, FOOTER_MAGIC)


class Segment(NamedTuple):
    """A whole segment that was checked; batches are positioned within the body."""

    header: SegmentHeader
    footer: SegmentFooter
    body: memoryview
    batches: list[BatchHeader]


def parse_header(data: Buffer, name: str = "segment") -> SegmentHeader:
    """Read the header from a file's first bytes.

    Raises:
        Corrupt: this version cannot read it; the text begins with the name.
    """
    if len(data) < HEADER_BYTES:
        raise Corrupt(f"{name}: ends after {len(data)} bytes, within its header")
    magic, version, flags, base, count, created, reserved = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise Corrupt(f"{name}: begins with {magic!r}, not with {MAGIC!r}; it is not a segment")
    if version != VERSION:
        raise Corrupt(f"{name}: segment version {version}; this Rookery reads {VERSION} only")
    if flags or reserved:
        raise Corrupt(f"{name}: flags {flags:#x} and reserved {reserved:#x} should be 0")
    if base < 0 or count < 0:
        raise Corrupt(f"{name}: base offset {base} or message count {count} is below 0")
    return SegmentHeader(base, count, created)


def parse_footer(data: Buffer, name: str = "segment") -> SegmentFooter:
    """Read the footer from a file's last bytes.

    Raises:
        Corrupt: the file has no valid footer.
    """
    if len(data) < FOOTER_BYTES:
        raise Corrupt(f"{name}: {len(data)} bytes hold no footer")
    crc, last_offset, magic = _FOOTER.unpack_from(data, len(data) - FOOTER_BYTES)
    if magic != FOOTER_MAGIC:
        raise Corrupt(f"{name}: ends with {magic!r}, not with {FOOTER_MAGIC!r}; it is cut off")
    return SegmentFooter(crc, last_offset)


def verify_segment(data: Buffer, name: str = "segment") -> Segment:
    """Check a whole segment: header, footer, the CRC over all batches, each batch, its offsets.

    No checksum of the format covers header and footer. A base offset that is too low, a last offset
    that is too high, or a wrong creation time is detected with the times file
    (`SegmentLayout.open_whole`).

    Raises:
        Corrupt: something is wrong; the text begins with the name.
    """
    header = parse_header(data, name)
    if len(data) < HEADER_BYTES + FOOTER_BYTES:
        raise Corrupt(f"{name}: ends after {len(data)} bytes, before its footer")
    footer = parse_footer(data, name)
    check_ends(header, footer, name)
    body = memoryview(data)[HEADER_BYTES : len(data) - FOOTER_BYTES]
    if checksum(body) != footer.crc:
        raise Corrupt(f"{name}: the CRC-32C of its batches is not the one in its footer")
    scanned = rewrite(body, expect_body(header, footer, len(body)))
    if scanned.damage is not None:
        raise corrupt(scanned.damage, name)
    count = scanned.record_count
    if count != header.message_count:
        raise Corrupt(f"{name}: holds {count} records, its header says {header.message_count}")
    return Segment(header, footer, body, scanned.headers)


def expect_body(header: SegmentHeader, footer: SegmentFooter, size: int) -> Expectation:
    """Return the expectation for the batches of a segment, which have `size` bytes."""
    extent = ExpectedExtent(header.base_offset, footer.last_offset + 1, HEADER_BYTES, size)
    return Expectation.of(extent, OffsetRule.SPARSE)


def check_ends(header: SegmentHeader, footer: SegmentFooter, name: str) -> None:
    """Reject a header and a footer that do not match."""
    offsets = footer.last_offset - header.base_offset + 1
    if offsets < 1 or header.message_count > offsets:
        raise Corrupt(
            f"{name}: {header.message_count} records do not fit the offsets "
            f"{header.base_offset} to {footer.last_offset}"
        )


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
        head = _INDEX_HEADER.pack(INDEX_MAGIC, INDEX_VERSION, len(self.entries), self.interval, 0)
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
    magic, version, count, interval, reserved = _INDEX_HEADER.unpack_from(data)
    if magic != INDEX_MAGIC:
        raise Corrupt(
            f"{name}: begins with {magic!r}, not with {INDEX_MAGIC!r}; it is not an index"
        )
    if version != INDEX_VERSION:
        raise Corrupt(f"{name}: index version {version}; this Rookery reads {INDEX_VERSION} only")
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
    for before, after in pairwise(entries):
        if before.offset >= after.offset or before.position >= after.position:
            raise Corrupt(f"{name}: entry {tuple(after)} is out of order after {tuple(before)}")
