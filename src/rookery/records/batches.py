"""The batch header of Kafka's format 2: parse, check, stamp.

A batch is not rewritten. A broker checks its frame, counts and CRC-32C, and its records if they are
not compressed. It stamps the offset and the leader epoch, which precede the bytes that the CRC
covers. Stamping any other field changes the CRC. The CRC is patched where that is cheaper than
computing it again.

    0 base offset (8)    8 length (4)    12 leader epoch (4)    16 magic (1)    17 CRC (4)
    21 attributes (2)    23 last offset delta (4)    27 base, 35 max timestamp (8 each)
    43 producer id (8)   51 producer epoch (2)    53 base sequence (4)    57 record count (4)

Attributes: bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon. Kafka
ignores and keeps the other bits, and so does Rookery: a proxy may store marks there.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from rookery.errors import ApiError, Corrupt, Error, ErrorCode
from rookery.records import crc, kernel, legacy
from rookery.records.compression import CODECS, DEFAULT_LIMIT, Codec
from rookery.records.kernel import Buffer

HEADER_SIZE = 61
MIN_RECORD_SIZE = 7
"""The size of a record without key, value and headers, with one-byte length, time and offset."""
OVERHEAD = 12
MAGIC = 2
NO_PRODUCER_ID = -1
NO_TIMESTAMP = -1

CODEC_MASK, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x07, 0x08, 0x10, 0x20, 0x40

FIELDS = Struct(">qiibIhiqqqhii")
"""The header on the wire: the first 13 fields of `BatchHeader`."""
_PREFIX = Struct(">qii")
_PREFIX_SIZE = 16
_CRC = Struct(">I")
_CRC_AT = 17
_COVERED = Struct(">hiqqqhii")
_CRC_FROM = 21

HEADERS_ONLY = sum(1 << codec for codec in CODECS) << kernel.CODECS_SHIFT
"""Rules of `kernel.scan` for bytes whose CRCs need not be computed."""
STORED = HEADERS_ONLY | kernel.CHECK_CRC
"""Rules of `kernel.scan` for batches that are read back from a log."""
_PRODUCED = STORED | kernel.FROM_PRODUCER | kernel.CHECK_RECORDS
_BROKEN = "records"


class TimestampType(IntEnum):
    """The clock that sets a batch's timestamps."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The fields of a batch header, and the batch's position in its buffer."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    position: int = 0

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return OVERHEAD + self.batch_length

    @property
    def end(self) -> int:
        """The position of the next batch in the buffer."""
        return self.position + OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        """The offset of the last record, even if compaction has removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record, or -1; sequences wrap around after 2**31 - 1."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def codec(self) -> Codec:
        """The compression codec of the records."""
        known = CODECS.get(self.attributes & CODEC_MASK)
        if known is None:
            raise _error("codec", self.position, from_producer=False)
        return known

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether producers or the broker set the timestamps."""
        return TimestampType(bool(self.attributes & LOG_APPEND_TIME))

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch contains markers instead of a user's records."""
        return bool(self.attributes & CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp is the delete horizon of tombstones and markers (KIP-534)."""
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def has_producer_id(self) -> bool:
        """Whether an idempotent producer wrote the batch."""
        return self.producer_id > NO_PRODUCER_ID

    def with_append_time(self, time_ms: int) -> BatchHeader:
        """Return the header for a topic with LogAppendTime: one time applies to all records."""
        return self._replace(attributes=self.attributes | LOG_APPEND_TIME, max_timestamp=time_ms)

    def pack(self) -> bytes:
        """Return the 61 bytes of the header unchanged, including the CRC."""
        return FIELDS.pack(*self[:13])


def parse(records: Buffer, at: int = 0) -> BatchHeader:
    """Parse one header; check only that the batch is complete and has magic 2."""
    if len(records) - at >= HEADER_SIZE:
        header = BatchHeader._make((*FIELDS.unpack_from(records, at), at))
        if header.magic == MAGIC and HEADER_SIZE <= header.size <= len(records) - at:
            return header
    # Something is wrong: the kernel determines the name of the fault.
    _, fault, _ = kernel.scan(memoryview(records)[at:], HEADERS_ONLY)
    raise _error(fault or "incomplete", at, from_producer=False)


def validate(records: Buffer) -> list[BatchHeader]:
    """Check batches that a producer sent, and parse their headers.

    Uncompressed records are walked. Compressed records are not decompressed, because that costs far
    more than all other checks (`record.inspect` does it). They must start like their codec's
    output, and be long enough for the records that the header claims.

    The rules are Kafka's, and stricter only in cases that no client uses. The stricter rules reject
    LogAppendTime, a producer id below -1 or without an epoch, record offsets with gaps, and bytes
    after the last batch. Two checks are left to the handler: Produce 3 and later carry one batch
    per partition, and zstd requires Produce 7.

    Raises:
        ApiError: with the error code that Kafka returns.
    """
    headers, fault, at = kernel.scan(records, _PRODUCED)
    if fault == _BROKEN:
        raise _find_fault(records, at)
    if fault:
        raise _error(fault, at, from_producer=True)
    if not headers:
        raise ApiError(ErrorCode.INVALID_RECORD, "a partition was sent without a record batch")
    made = list(map(BatchHeader._make, headers))
    for header in made:
        if header.attributes & CODEC_MASK and not _has_room(header):
            raise _error("count", header.position, from_producer=True)
    return made


def _has_room(header: BatchHeader) -> bool:
    """Return whether the compressed bytes can contain the claimed records within the limit."""
    most = (header.size - HEADER_SIZE) * CODECS[header.attributes & CODEC_MASK].expansion
    return header.record_count * MIN_RECORD_SIZE <= min(most, DEFAULT_LIMIT)


def verify(records: Buffer) -> list[BatchHeader]:
    """Check batches that were read from a log, where compaction may have left gaps.

    Raises:
        Corrupt: a batch is damaged, or the last batch is incomplete.
    """
    headers, fault, at = kernel.scan(records, STORED)
    if fault:
        raise _error(fault, at, from_producer=False)
    return list(map(BatchHeader._make, headers))


def check_fetched(records: Buffer) -> list[BatchHeader]:
    """Check batches that a broker sent: like `verify`, but the last one may be incomplete.

    A broker fills a response up to its byte limit, so the last batch may be cut off at any byte.
    The remainder is left out; it starts at the `end` of the last header.
    """
    headers, fault, at = kernel.scan(records, STORED)
    if fault and fault != "incomplete":
        raise _error(fault, at, from_producer=False)
    return list(map(BatchHeader._make, headers))


def outline(records: Buffer) -> list[BatchHeader]:
    """Parse the headers of complete batches up to the first fault, without computing CRCs."""
    headers, _, _ = kernel.scan(records, HEADERS_ONLY)
    return list(map(BatchHeader._make, headers))


def sound(records: Buffer) -> tuple[list[BatchHeader], Error | None]:
    """Check batches like `fetched`; return those before a fault, and the fault."""
    headers, fault, at = kernel.scan(records, STORED)
    is_fault = bool(fault) and fault != "incomplete"
    error = _error(fault, at, from_producer=False) if is_fault else None
    return list(map(BatchHeader._make, headers)), error


def split(records: Buffer) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield every complete batch of a trusted buffer with its header, without computing CRCs."""
    view = memoryview(records)
    headers, fault, at = kernel.scan(view, HEADERS_ONLY)
    if fault and fault != "incomplete":
        raise _error(fault, at, from_producer=False)
    for row in headers:
        header = BatchHeader._make(row)
        yield header, view[header.position : header.end]


def stamp(batch: Buffer, base_offset: int, leader_epoch: int) -> tuple[bytes, memoryview]:
    """Stamp offset and leader epoch: return a new prefix and the rest, which is not copied.

    Both fields are outside the CRC, so the cost does not depend on the size.
    """
    view = memoryview(batch)
    _, length, _ = _PREFIX.unpack_from(view)
    return _PREFIX.pack(base_offset, length, leader_epoch), view[_PREFIX_SIZE:]


def stamp_into(
    batch: bytearray | memoryview, base_offset: int, leader_epoch: int, at: int = 0
) -> None:
    """Stamp offset and leader epoch in place."""
    _, length, _ = _PREFIX.unpack_from(batch, at)
    _PREFIX.pack_into(batch, at, base_offset, length, leader_epoch)


def restamp(batch: Buffer, header: BatchHeader) -> tuple[bytes, memoryview]:
    """Replace a batch's header with one made by `_replace` from its own, and update the CRC.

    Returns the new 61 bytes and the rest, which is not copied. The old CRC is not verified. A wrong
    CRC stays wrong, so that damage is never hidden.
    """
    view = memoryview(batch)[header.position :]
    _, length, _ = _PREFIX.unpack_from(view)
    old, rest = view[_CRC_FROM:HEADER_SIZE], view[HEADER_SIZE : OVERHEAD + length]
    new = _COVERED.pack(*header[5:13])
    (value,) = _CRC.unpack_from(view, _CRC_AT)
    if old != new:
        value = _new_crc(value, old, new, rest)
    head = _PREFIX.pack(header.base_offset, length, header.partition_leader_epoch)
    return b"%b\x02%b%b" % (head, _CRC.pack(value), new), rest


def restamp_into(batch: bytearray | memoryview, header: BatchHeader) -> None:
    """Replace a batch's header like `restamp`, in place."""
    head, _ = restamp(batch, header)
    memoryview(batch)[header.position : header.position + HEADER_SIZE] = head


def seal(header: BatchHeader, body: Buffer) -> bytes:
    """Return a header whose length and CRC match the body that follows it."""
    length = HEADER_SIZE - OVERHEAD + len(body)
    if length > 0x7FFFFFFF:
        raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, "a batch cannot be 2 GiB long")
    covered = _COVERED.pack(*header[5:13])
    value = crc.checksum(body, crc.checksum(covered))
    return header._replace(batch_length=length, magic=MAGIC, crc=value).pack()


def _new_crc(value: int, old: Buffer, new: Buffer, rest: memoryview) -> int:
    if len(rest) >= kernel.PATCH_FROM_BYTES:
        return crc.replace(value, old, new, len(rest))
    before = crc.checksum(rest, crc.checksum(old))
    return crc.checksum(rest, crc.checksum(new)) ^ before ^ value


_FAULTS = {
    "incomplete": (ErrorCode.INVALID_RECORD, "the batch is not all there"),
    "length": (ErrorCode.CORRUPT_MESSAGE, "its length is less than a header's"),
    "magic": (ErrorCode.CORRUPT_MESSAGE, "its magic is unknown to Kafka"),
    "crc": (ErrorCode.CORRUPT_MESSAGE, "its CRC-32C does not match"),
    "codec": (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "its codec is unknown to Kafka"),
    "count": (ErrorCode.INVALID_RECORD, "its record count, offset delta and size disagree"),
    "control": (ErrorCode.INVALID_RECORD, "clients may not write control batches"),
    "append time": (ErrorCode.INVALID_TIMESTAMP, "only the broker may set LogAppendTime"),
    "base offset": (ErrorCode.INVALID_RECORD, "a producer's base offset must be 0"),
    "offset": (ErrorCode.INVALID_RECORD, "its offsets are out of range"),
    "producer": (ErrorCode.INVALID_RECORD, "its producer id is below -1"),
    "sequence": (ErrorCode.INVALID_RECORD, "a producer id needs an epoch and a sequence"),
    "transaction": (ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id"),
    "packed": (ErrorCode.INVALID_RECORD, "its records do not begin as its codec's output does"),
}


def _find_fault(records: Buffer, at: int) -> ApiError:
    """Walk the records again to determine which one is broken, and why."""
    header = parse(records, at)
    try:
        kernel.walk(memoryview(records)[at + HEADER_SIZE : header.end], header)
    except Corrupt as error:
        return ApiError(ErrorCode.INVALID_RECORD, str(error), name=f"batch at byte {at}")
    raise AssertionError("the kernel's two walks over the same records differ")


def reason(fault: str) -> str:
    """Return the description of a stored batch's fault, by the kernel's name for it."""
    if fault in legacy.MAGICS:
        return str(legacy.refuse(fault, from_producer=False))
    return _FAULTS[fault][1]


def _error(fault: str, at: int, *, from_producer: bool) -> Error:
    if fault in legacy.MAGICS:
        return legacy.refuse(fault, from_producer=from_producer)
    code, text = _FAULTS[fault]
    if from_producer or code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
        return ApiError(code, text, name=f"batch at byte {at}")
    return Corrupt(text, name=f"batch at byte {at}")
