"""The `.times` file of a segment: facts that the segment and its index do not contain.

It divides the segment into blocks, one for each index entry. For every block it has the highest
time and a CRC-32C over all bytes. A part of a segment can therefore be selected by offset or by
time, and checked including the bytes that no batch's own CRC covers. The file also contains copies
of the segment's header and footer and the checksum of the index, because those have no checksum of
their own. It names the owner of the segment, so that a lost cluster log can be rebuilt from the
store alone. Sections (see `formats.sections`), numbers big-endian:

    1 origin    topic id (16)  partition (4)  incarnation (8)  number (4)
                namespace (2 + n)  topic (2 + n)
    2 segment   header (32)  footer (16)  size (4)  CRC-32C of the index file (4)
    3 blocks    for each: offset (8)  position (4)  highest time (8)  CRC-32C (4)
    4 aborted   for each transaction: producer id (8)  first offset (8)  last offset (8)
    5 epochs    for each leader epoch: epoch (4)  the offset it began at (8)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from rookery.errors import Corrupt
from rookery.formats.keys import parse_segment_key
from rookery.formats.sections import pack_sections, parse_sections
from rookery.formats.segment import (
    FOOTER_BYTES,
    HEADER_BYTES,
    SegmentFooter,
    SegmentHeader,
    check_ends,
    parse_footer,
    parse_header,
)
from rookery.records.crc import checksum
from rookery.records.kernel import Buffer

MAGIC: Final = b"RKTIMES\0"
VERSION: Final = 1

_ORIGIN, _SEGMENT, _BLOCKS, _ABORTED, _EPOCHS = range(1, 6)
_KNOWN: Final = frozenset((_ORIGIN, _SEGMENT, _BLOCKS, _ABORTED, _EPOCHS))
_NAMED: Final = {_ORIGIN: "origin", _SEGMENT: "segment", _BLOCKS: "blocks"}

_OWNER: Final = Struct(">16siqI")
_TEXT: Final = Struct(">H")
_ENDS: Final = Struct(">32s16sII")
_BLOCK: Final = Struct(">qiqI")
_TRANSACTION: Final = Struct(">qqq")
_EPOCH: Final = Struct(">iq")


class SegmentOrigin(NamedTuple):
    """The partition and the writer of a segment."""

    namespace: str
    topic: str
    topic_id: bytes
    partition: int
    incarnation: int
    number: int
    """The number of the object within its incarnation."""


class TimeBlock(NamedTuple):
    """A run of batches: its start, its highest time, and its CRC-32C."""

    offset: int
    position: int
    max_timestamp: int
    crc: int


class SegmentAbort(NamedTuple):
    """An aborted transaction: the offsets of its first record and of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class SegmentEpoch(NamedTuple):
    """A leader epoch, and the offset at which it began."""

    epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The contents of a times file."""

    origin: SegmentOrigin
    header: SegmentHeader
    footer: SegmentFooter
    size: int
    """Bytes of the segment file."""
    index_crc: int
    blocks: Sequence[TimeBlock]
    aborted: Sequence[SegmentAbort] = ()
    """All aborted transactions that overlap the segment, in the order of their last offsets."""
    epochs: Sequence[SegmentEpoch] = ()
    """All epochs that have offsets in the segment; the first may have begun before it."""

    def pack(self) -> bytes:
        """Write the file."""
        sections = {
            _ORIGIN: _pack_origin(self.origin),
            _SEGMENT: _ENDS.pack(self.header.pack(), self.footer.pack(), self.size, self.index_crc),
            _BLOCKS: _pack_rows(_BLOCK, self.blocks),
            _ABORTED: _pack_rows(_TRANSACTION, self.aborted),
            _EPOCHS: _pack_rows(_EPOCH, self.epochs),
        }
        return pack_sections(MAGIC, VERSION, sections)

    @property
    def max_timestamp(self) -> int:
        """The highest time in the segment, -1 if there is none."""
        return max((block.max_timestamp for block in self.blocks), default=-1)

    def check_segment(self, first: Buffer, last: Buffer, size: int, name: str) -> None:
        """Reject a segment file whose header, footer or size differs from this file.

        Raises:
            Corrupt: it is damaged, or another segment's.
        """
        if size != self.size:
            raise Corrupt(f"{name}: {size} bytes; its times file says {self.size}")
        if bytes(first[:HEADER_BYTES]) != self.header.pack():
            raise Corrupt(f"{name}: its header is not the one that its times file has")
        if bytes(last[-FOOTER_BYTES:]) != self.footer.pack():
            raise Corrupt(f"{name}: its footer is not the one that its times file has")

    def check_key(self, key: str) -> None:
        """Reject a key that does not match this file, because the file was copied or renamed."""
        parsed = parse_segment_key(key)
        has = (self.origin.namespace, self.origin.topic, self.origin.partition)
        if parsed is None or (*parsed[:3], parsed.base_offset) != (*has, self.header.base_offset):
            raise Corrupt(
                f"{key}: says it belongs to {'/'.join(map(str, has))} at offset "
                f"{self.header.base_offset}, so it was copied or renamed"
            )

    def check_index(self, data: Buffer, name: str) -> None:
        """Reject an index file that is not identical to the one written with this file."""
        if checksum(data) != self.index_crc:
            raise Corrupt(f"{name}: its CRC-32C is not the one that the times file has")


def parse_times(data: Buffer, name: str = "times") -> Times:
    """Read a times file.

    Raises:
        Corrupt: this version cannot read it; the text begins with the name.
    """
    sections = parse_sections(data, MAGIC, VERSION, _KNOWN, name)
    for kind, title in _NAMED.items():
        if kind not in sections:
            raise Corrupt(f"{name}: has no section {kind} ({title})")
    if len(sections[_SEGMENT]) != _ENDS.size:
        raise Corrupt(f"{name}: its section 2 (segment) has {len(sections[_SEGMENT])} bytes")
    first, last, size, index_crc = _ENDS.unpack(sections[_SEGMENT])
    times = Times(
        origin=_parse_origin(sections[_ORIGIN], name),
        header=parse_header(first, name),
        footer=parse_footer(last, name),
        size=size,
        index_crc=index_crc,
        blocks=[TimeBlock(*row) for row in _rows(_BLOCK, sections[_BLOCKS], name)],
        aborted=[
            SegmentAbort(*row)
            for row in _rows(_TRANSACTION, sections.get(_ABORTED, memoryview(b"")), name)
        ],
        epochs=[
            SegmentEpoch(*row)
            for row in _rows(_EPOCH, sections.get(_EPOCHS, memoryview(b"")), name)
        ],
    )
    _check(times, name)
    return times


def _pack_origin(origin: SegmentOrigin) -> bytes:
    parts = [_OWNER.pack(origin.topic_id, origin.partition, origin.incarnation, origin.number)]
    for text in (origin.namespace, origin.topic):
        encoded = text.encode()
        parts += (_TEXT.pack(len(encoded)), encoded)
    return b"".join(parts)


def _parse_origin(data: memoryview, name: str) -> SegmentOrigin:
    if len(data) < _OWNER.size:
        raise Corrupt(f"{name}: its section 1 (origin) is too short")
    topic_id, partition, incarnation, number = _OWNER.unpack_from(data)
    namespace, rest = _parse_text(data[_OWNER.size :], name)
    topic, rest = _parse_text(rest, name)
    if rest:
        raise Corrupt(f"{name}: its section 1 (origin) is {len(rest)} bytes too long")
    return SegmentOrigin(namespace, topic, topic_id, partition, incarnation, number)


def _parse_text(data: memoryview, name: str) -> tuple[str, memoryview]:
    length = _TEXT.unpack_from(data)[0] if len(data) >= _TEXT.size else len(data)
    end = _TEXT.size + length
    if end > len(data):
        raise Corrupt(f"{name}: a name in its section 1 (origin) is cut off")
    try:
        return str(data[_TEXT.size : end], "utf-8"), data[end:]
    except UnicodeDecodeError as error:
        raise Corrupt(f"{name}: a name in its section 1 (origin) is not UTF-8") from error


def _pack_rows(form: Struct, rows: Iterable[tuple[int, ...]]) -> bytes:
    return b"".join(form.pack(*row) for row in rows)


def _rows(form: Struct, data: memoryview, name: str) -> Iterable[tuple[int, ...]]:
    if len(data) % form.size:
        raise Corrupt(f"{name}: {len(data)} bytes are not rows of {form.size}")
    return form.iter_unpack(data)


def _check(times: Times, name: str) -> None:
    """Reject blocks that are not consecutive or do not fill the segment."""
    check_ends(times.header, times.footer, name)
    end = TimeBlock(times.footer.last_offset + 1, times.size - FOOTER_BYTES, 0, 0)
    rows = (*times.blocks, end)
    if rows[0].position != HEADER_BYTES or rows[0].offset < times.header.base_offset:
        raise Corrupt(f"{name}: its first block {rows[0][:2]} is not where the segment begins")
    for before, after in pairwise(rows):
        if before.offset >= after.offset or before.position >= after.position:
            raise Corrupt(f"{name}: block {after[:2]} is out of order after {before[:2]}")
