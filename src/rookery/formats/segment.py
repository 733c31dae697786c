"""The `.kfs` segment: the batches of one partition between a header and a footer, big-endian.

    header   0 "KAFS" (4)   4 version (2)   6 flags (2)   8 base offset (8)   16 message count (4)
            20 created, Unix ms (8)   28 reserved (4)
    batches, one after the other, exactly as Kafka's format 2 has them
    footer   0 CRC-32C of all batches (4)   4 last offset (8)   12 "END!" (4)

Flags and reserved are 0. A segment covers all offsets from base to last, even where compaction has
removed records. The message count is the number of records that are present. Index positions are 31
bits wide, so a segment stays below 2 GiB.
"""

from __future__ import annotations

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
        raise Corrupt(f"{name}: begins with {magic!r}, not with {MAGIC!r}; it is no segment")
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
    (`Layout.open_whole`).

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
    found = rewrite(body, expect_body(header, footer, len(body)))
    if found.damage is not None:
        raise corrupt(found.damage, name)
    count = found.record_count
    if count != header.message_count:
        raise Corrupt(f"{name}: holds {count} records, its header says {header.message_count}")
    return Segment(header, footer, body, found.headers)


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
