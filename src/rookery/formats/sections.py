"""A file format of sections with one checksum, extensible without a new version; big-endian.

    head      0 magic (8)   8 version (2)   10 section count (2)   12 bytes of the whole file (4)
    section   0 kind (2)   2 zero (2)   4 length of what follows (4)   8 contents
    tail      0 CRC-32C of everything before it (4)

A reader skips unknown kinds, unless they have the bit `MUST_KNOW`. A change that old readers would
misread needs a new version, which they reject.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

from rookery.errors import Corrupt
from rookery.records.crc import checksum
from rookery.records.kernel import Buffer

MUST_KNOW: Final = 0x8000

_HEAD: Final = Struct(">8sHHI")
_SECTION: Final = Struct(">HHI")
_CRC: Final = Struct(">I")


def pack_sections(magic: bytes, version: int, sections: Mapping[int, bytes]) -> bytes:
    """Write a file of sections, in the order given."""
    size = (
        _HEAD.size + sum(_SECTION.size + len(section) for section in sections.values()) + _CRC.size
    )
    parts = [_HEAD.pack(magic, version, len(sections), size)]
    for kind, contents in sections.items():
        parts += (_SECTION.pack(kind, 0, len(contents)), contents)
    data = b"".join(parts)
    return data + _CRC.pack(checksum(data))


def parse_sections(
    data: Buffer, magic: bytes, version: int, known: frozenset[int], name: str
) -> dict[int, memoryview]:
    """Read the sections of known kinds; others are skipped.

    Raises:
        Corrupt: the file is damaged, has another format or version, or an unknown required section.
    """
    _check_file(data, magic, version, name)
    view = memoryview(data)
    sections: dict[int, memoryview] = {}
    at, end = _HEAD.size, len(data) - _CRC.size
    for _ in range(_HEAD.unpack_from(data)[2]):
        kind, contents = _section(view, at, end, name)
        at += _SECTION.size + len(contents)
        if kind in sections:
            raise Corrupt(f"{name}: section {kind} occurs twice")
        if kind in known:
            sections[kind] = contents
        elif kind & MUST_KNOW:
            raise Corrupt(f"{name}: section {kind:#x} is not known to this Rookery, and must be")
    if at != end:
        raise Corrupt(f"{name}: {end - at} bytes follow its last section")
    return sections


def _check_file(data: Buffer, magic: bytes, version: int, name: str) -> None:
    if len(data) < _HEAD.size + _CRC.size:
        raise Corrupt(f"{name}: ends after {len(data)} bytes, within its header")
    has_magic, has_version, _, size = _HEAD.unpack_from(data)
    if has_magic != magic:
        raise Corrupt(f"{name}: begins with {has_magic!r}, not with {magic!r}")
    if has_version != version:
        raise Corrupt(f"{name}: format version {has_version}; this Rookery reads {version} only")
    if size != len(data):
        raise Corrupt(f"{name}: {len(data)} bytes, its header says {size}; it is cut off")
    (crc,) = _CRC.unpack_from(data, size - _CRC.size)
    if crc != checksum(memoryview(data)[: size - _CRC.size]):
        raise Corrupt(f"{name}: is damaged (its checksum is wrong)")


def _section(view: memoryview, at: int, end: int, name: str) -> tuple[int, memoryview]:
    if end - at < _SECTION.size:
        raise Corrupt(f"{name}: the section at byte {at} is cut off")
    kind, zero, length = _SECTION.unpack_from(view, at)
    start = at + _SECTION.size
    if zero or length > end - start:
        raise Corrupt(f"{name}: the section at byte {at} cannot be {length} bytes long")
    return kind, view[start : start + length]
