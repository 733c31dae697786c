"""The header of a journal file, which identifies it, so that a misplaced file is detected.

Thirty-two bytes, big-endian: magic, version, two bytes of zero, file number, incarnation, four
bytes of zero, CRC-32C of the 28 bytes before. Batches follow without separators. Only the cluster
log knows their positions. Positions count from the start of the file.
"""

from __future__ import annotations

from struct import Struct

from rookery.errors import Corrupt
from rookery.formats.keys import journal_name, split_object_id
from rookery.records.crc import checksum
from rookery.wire.buffer import Buffer

MAGIC = b"RKJOURNL"
VERSION = 1
_FIELDS = Struct(">8sHHIQI")
_CRC = Struct(">I")
HEADER_BYTES = _FIELDS.size + _CRC.size


def journal_header(identity: int) -> bytes:
    """Return the first bytes of the journal file with this object id."""
    incarnation, number = split_object_id(identity)
    fields = _FIELDS.pack(MAGIC, VERSION, 0, number, incarnation, 0)
    return fields + _CRC.pack(checksum(fields))


def check_journal_header(identity: int, head: Buffer) -> None:
    """Reject, as corrupt, a file whose header is not the one for this object id."""
    head = bytes(head[:HEADER_BYTES])
    if head == journal_header(identity):
        return
    raise Corrupt(f"journal file {journal_name(identity)} {_fault(head)}; it cannot be read")


def _fault(head: bytes) -> str:
    if len(head) < HEADER_BYTES:
        return f"ends after {len(head)} bytes, within its header"
    magic, version, _, number, incarnation, _ = _FIELDS.unpack_from(head)
    if magic != MAGIC:
        return f"begins with {magic!r}, not with {MAGIC!r}"
    if version != VERSION:
        return f"has format version {version}; this version of Rookery reads {VERSION}"
    if _CRC.unpack_from(head, _FIELDS.size)[0] != checksum(head[: _FIELDS.size]):
        return "has a damaged header (the checksum is wrong)"
    return f"says it is file {number} of incarnation {incarnation}, so it was copied or renamed"
