"""The kernel in pure Python: the fallback without compiled code, and the oracle in tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from crc32c import crc32c

from rookery.errors import ApiError, Corrupt, ErrorCode
from rookery.records.varint import zigzag

if TYPE_CHECKING:
    from rookery.records._kernel import RawHeader, RawRecord

Buffer: TypeAlias = bytes | bytearray | memoryview
Row = TypeVar("Row", bound=tuple[Any, ...])

# Measured: a patch costs 20 to 60 us here; reading 1 MB twice for its CRC costs 74 us.
PATCH_FROM_BYTES = 512 * 1024

_HEADER = Struct(">qiibIhiqqqhii")
_LENGTH = Struct(">i")
_FROM_PRODUCER, _CHECK_CRC, _CHECK_RECORDS, _CODECS_SHIFT = 1, 2, 4, 8
_HEADER_SIZE, _OVERHEAD, _MIN_RECORD = 61, 12, 7
_MAGIC_AT, _CRC_FROM = 16, 21
_INT32_MAX, _INT64_MAX, _INT64_MIN = 2**31 - 1, 2**63 - 1, -(2**63)
_SNAPPY, _XERIAL = 2, b"\x82SNAPPY\x00"
# The first bytes of the other codecs; some zstd frames are skippable.
_BEGINNINGS = {
    1: (b"\x1f\x8b\x08",),
    3: (b"\x04\x22\x4d\x18",),
    4: (b"\x28\xb5\x2f\xfd", *(bytes([low]) + b"\x2a\x4d\x18" for low in range(0x50, 0x60))),
}

_BAD_VARINT = "a varint is cut off or too long"
_BAD_LENGTH = "its length does not fit into the batch"
_BAD_FIELD = "its key or value does not fit into it"
_BAD_COUNT = "its number of headers does not fit into it"
_BAD_HEADER = "a header does not fit into it"
_NO_HEADER_KEY = "a header has no key"
_LEFT_OVER = "bytes are left over at its end"
_BAD_OFFSET = "its offset is out of order"
_BAD_TIMESTAMP = "its timestamp is out of range"


def scan(data: Buffer, rules: int, /) -> tuple[list[RawHeader], str, int]:
    """Parse and check the headers of all batches; also return the final fault and its position."""
    view = memoryview(data).cast("B")
    headers: list[RawHeader] = []
    at = 0
    while at < len(view):
        fault = _frame_fault(view, at)
        if fault:
            return headers, fault, at
        header: RawHeader = (*_HEADER.unpack_from(view, at), at)
        end = at + _OVERHEAD + header[1]
        if rules & _CHECK_CRC and crc32c(view[at + _CRC_FROM : end]) != header[4]:
            return headers, "crc", at
        fault = _header_fault(header, rules)
        if not fault and rules & _CHECK_RECORDS:
            fault = _body_fault(view[at + _HEADER_SIZE : end], header)
        if fault:
            return headers, fault, at
        headers.append(header)
        at = end
    return headers, "", at


def _frame_fault(view: memoryview, at: int) -> str:
    left = len(view) - at
    if left < _OVERHEAD:
        return "incomplete"
    if left > _MAGIC_AT and view[at + _MAGIC_AT] != 2:
        return {0: "magic 0", 1: "magic 1"}.get(view[at + _MAGIC_AT], "magic")
    (length,) = _LENGTH.unpack_from(view, at + 8)
    if length < _HEADER_SIZE - _OVERHEAD:
        return "length"
    return "incomplete" if length > left - _OVERHEAD else ""


def _header_fault(header: RawHeader, rules: int) -> str:
    attributes, count = header[5], header[12]
    codec = attributes & 7
    if not rules >> _CODECS_SHIFT >> codec & 1:
        return "codec"
    room = header[1] + _OVERHEAD - _HEADER_SIZE
    if codec == 0 and count > room // _MIN_RECORD:
        return "count"
    return _producer_fault(header) if rules & _FROM_PRODUCER else _stored_fault(header)


def _stored_fault(header: RawHeader) -> str:
    base_offset, delta, count = header[0], header[6], header[12]
    if count < 0 or delta < 0 or count - 1 > delta:
        return "count"
    return "offset" if base_offset < 0 or base_offset > _INT64_MAX - delta else ""


def _producer_fault(header: RawHeader) -> str:
    attributes, count = header[5], header[12]
    if attributes & 32:
        return "control"
    if attributes & 8:
        return "append time"
    if header[0] != 0:
        return "base offset"
    if count <= 0 or count - 1 != header[6]:
        return "count"
    return _sequence_fault(header)


def _sequence_fault(header: RawHeader) -> str:
    producer_id, producer_epoch, base_sequence = header[9:12]
    if producer_id < -1:
        return "producer"
    if producer_id == -1:
        return "transaction" if header[5] & 16 else ""
    return "sequence" if producer_epoch < 0 or base_sequence < 0 else ""


def _body_fault(body: memoryview, header: RawHeader) -> str:
    """Check uncompressed records; of compressed ones, check only the first bytes."""
    codec, count = header[5] & 7, header[12]
    if codec:
        return "" if count == 0 or _is_packed(bytes(body), codec, count) else "packed"
    try:
        walk(body, header)
    except Corrupt:
        return "records"
    return ""


def _is_packed(body: bytes, codec: int, count: int) -> bool:
    if codec == _SNAPPY:
        return _is_snappy(body, count)
    beginnings = _BEGINNINGS.get(codec)
    return len(body) >= 4 and (beginnings is None or body.startswith(beginnings))


def _is_snappy(body: bytes, count: int) -> bool:
    """Return whether it is xerial's framing, or raw with a size that the records can have."""
    if body.startswith(_XERIAL):
        return True
    try:
        stated, _ = _unsigned(body, 0, len(body), 32)
    except _Fault:
        return False
    return _MIN_RECORD * count <= stated <= _INT32_MAX


def walk(data: Buffer, header: RawHeader, /) -> tuple[int, int, int, int]:
    """Check every record; return min and max timestamp, offset of the max, and null keys."""
    lowest, highest, offset_of_highest, null_keys = _INT64_MAX, _INT64_MIN, -1, 0
    for span in _spans(bytes(data), header):
        timestamp = span.timestamp
        lowest = lowest if timestamp == -1 else min(lowest, timestamp)
        if timestamp > highest:
            highest, offset_of_highest = timestamp, span.offset
        null_keys += span.key_size < 0
    if offset_of_highest < 0:
        return -1, -1, -1, 0
    return -1 if lowest == _INT64_MAX else lowest, highest, offset_of_highest, null_keys


def decode(data: Buffer, header: RawHeader, make: type[Row], /) -> Iterator[Row]:
    """Yield every record as an instance of a tuple class with the fields of `RawRecord`."""
    raw = bytes(data)
    append_time = header[8] if header[5] & 8 else None
    for span in _spans(raw, header):
        timestamp = span.timestamp if append_time is None else append_time
        key = _cut(raw, span.key_at, span.key_size)
        value = _cut(raw, span.value_at, span.value_size)
        row = (key, value, _headers(raw, span), timestamp, span.offset)
        yield tuple.__new__(make, row)


def _cut(raw: bytes, at: int, size: int) -> bytes | None:
    return None if size < 0 else raw[at : at + size]


def _headers(raw: bytes, span: _Span) -> tuple[tuple[str, bytes | None], ...]:
    headers = []
    at = span.headers_at
    for _ in range(span.headers):
        size, at = _varint(raw, at, span.end)
        # Bytes that are not UTF-8 must survive a rewrite, so they are kept, not replaced.
        name = raw[at : at + size].decode("utf-8", "surrogateescape")
        size, at = _varint(raw, at + size, span.end)
        headers.append((name, _cut(raw, at, size)))
        at += max(size, 0)
    return tuple(headers)


class _Fault(Exception):  # noqa: N818
    """The fault of the current record."""


class _Span:
    """The positions of one record's parts."""

    __slots__ = (
        "end",
        "headers",
        "headers_at",
        "key_at",
        "key_size",
        "offset",
        "timestamp",
        "value_at",
        "value_size",
    )

    def __init__(self, raw: bytes, at: int) -> None:
        length, at = _varint(raw, at, len(raw))
        if length < 0 or length > len(raw) - at:
            raise _Fault(_BAD_LENGTH)
        end = self.end = at + length
        # The first byte contains the record's attributes, which are not used yet.
        self.timestamp, at = _varlong(raw, at + 1, end)
        self.offset, at = _varint(raw, at, end)
        self.key_size, self.key_at = _field(raw, at, end, _BAD_FIELD)
        at = self.key_at + max(self.key_size, 0)
        self.value_size, self.value_at = _field(raw, at, end, _BAD_FIELD)
        at = self.value_at + max(self.value_size, 0)
        self.headers, self.headers_at = _varint(raw, at, end)
        if _skip_headers(raw, self.headers_at, end, self.headers) != end:
            raise _Fault(_LEFT_OVER)


def _spans(raw: bytes, header: RawHeader) -> Iterator[_Span]:
    at, last = 0, -1
    count = header[12]
    if count > len(raw) // _MIN_RECORD:
        raise Corrupt(f"{count} records cannot be in {len(raw)} bytes")
    for index in range(count):
        try:
            span = _Span(raw, at)
            at = span.end
            last = _place(span, header, last)
        except _Fault as fault:
            raise Corrupt(f"record {index}: {fault}") from None
        yield span
    if at != len(raw):
        raise Corrupt("bytes are left over after the last record")


def _place(span: _Span, header: RawHeader, last: int) -> int:
    delta = span.offset
    if delta <= last or delta > header[6] or header[0] > _INT64_MAX - delta:
        raise _Fault(_BAD_OFFSET)
    span.offset += header[0]
    span.timestamp += header[7]
    if not _INT64_MIN <= span.timestamp <= _INT64_MAX:
        raise _Fault(_BAD_TIMESTAMP)
    return delta


def _skip_headers(raw: bytes, at: int, end: int, count: int) -> int:
    if count < 0 or count > (end - at) // 2:
        raise _Fault(_BAD_COUNT)
    for _ in range(count):
        size, at = _field(raw, at, end, _BAD_HEADER)
        if size < 0:
            raise _Fault(_NO_HEADER_KEY)
        size, at = _field(raw, at + size, end, _BAD_HEADER)
        at += max(size, 0)
    return at


def _field(raw: bytes, at: int, end: int, fault: str) -> tuple[int, int]:
    size, at = _varint(raw, at, end)
    if size < -1 or size > end - at:
        raise _Fault(fault)
    return size, at


def _varint(raw: bytes, at: int, end: int) -> tuple[int, int]:
    value, at = _unsigned(raw, at, end, 32)
    return (value >> 1) ^ -(value & 1), at


def _varlong(raw: bytes, at: int, end: int) -> tuple[int, int]:
    value, at = _unsigned(raw, at, end, 64)
    return (value >> 1) ^ -(value & 1), at


def _unsigned(raw: bytes, at: int, end: int, bits: int) -> tuple[int, int]:
    value = shift_by = 0
    while at < end and shift_by < bits:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift_by
        if byte < 0x80:
            if value >> bits:
                break
            return value, at
        shift_by += 7
    raise _Fault(_BAD_VARINT)


def encode(records: Iterable[RawRecord], base_offset: int, /) -> tuple[bytes, int, int, int, int]:
    """Write records; return bytes, count, last offset delta, first and highest timestamp."""
    out = bytearray()
    count, delta, first, highest = 0, -1, -1, _INT64_MIN
    _check_i64(base_offset)
    for record in records:
        if not _is_row(record):
            raise TypeError("a record must be a tuple of key, value, headers, timestamp, offset")
        key, value, headers, timestamp, offset = record
        _check_i64(timestamp)
        _check_i64(offset)
        first = timestamp if count == 0 else first
        highest = max(highest, timestamp)
        delta = _next_delta(delta, offset, base_offset)
        body = bytearray(1)
        body += zigzag(_timestamp_delta(timestamp, first))
        body += zigzag(delta)
        _put_bytes(body, key, "key")
        _put_bytes(body, value, "value")
        _put_headers(body, headers)
        if len(body) > _INT32_MAX or len(out) + len(body) > _INT32_MAX:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE, "a batch cannot be 2 GiB long")
        out += zigzag(len(body))
        out += body
        count += 1
    return bytes(out), count, delta, first, highest if count else -1


def _is_row(record: object) -> bool:
    return isinstance(record, tuple) and len(record) == 5


def _check_i64(value: object) -> None:
    if not isinstance(value, int):
        raise TypeError(f"a record's timestamp and offset must be int, not {type(value).__name__}")
    if not _INT64_MIN <= value <= _INT64_MAX:
        raise OverflowError("a record's timestamp or offset does not fit into 64 bits")


def _next_delta(last: int, offset: int, base_offset: int) -> int:
    delta = last + 1 if offset == -1 else offset - base_offset
    if delta <= last or delta > _INT32_MAX:
        raise ValueError(f"offset {offset} cannot follow in a batch whose base is {base_offset}")
    return delta


def _timestamp_delta(timestamp: int, first: int) -> int:
    delta = timestamp - first
    if not _INT64_MIN <= delta <= _INT64_MAX:
        raise ValueError(f"timestamps {first} and {timestamp} cannot be in one batch")
    return delta


def _put_headers(out: bytearray, headers: Iterable[tuple[str, bytes | None]]) -> None:
    pairs = tuple(headers)
    out += zigzag(len(pairs))
    for name, value in pairs:
        if not isinstance(name, str):
            raise TypeError(f"a header's key must be str, not {type(name).__name__}")
        _put_bytes(out, name.encode("utf-8", "surrogateescape"), "header's key")
        _put_bytes(out, value, "header's value")


def _put_bytes(out: bytearray, value: bytes | None, what: str) -> None:
    if value is None:
        out += zigzag(-1)
        return
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"a {what} must be bytes or None, not {type(value).__name__}")
    raw = bytes(value)
    out += zigzag(len(raw))
    out += raw


_POLYNOMIAL = 0x82F63B78


def _multiply(left: int, right: int) -> int:
    """Multiply two polynomials modulo CRC-32C's; the highest bit is the lowest power."""
    product = 0
    for bit in range(31, -1, -1):
        if left >> bit & 1:
            product ^= right
        right = right >> 1 ^ (_POLYNOMIAL if right & 1 else 0)
    return product


def _squares() -> list[int]:
    # x to the 8th is a step of one byte; each next entry is twice as far.
    powers = [1 << 23]
    while len(powers) < 63:
        powers.append(_multiply(powers[-1], powers[-1]))
    return powers


_POWERS = _squares()


def shift(crc: int, length: int, /) -> int:
    """Shift a CRC-32C past the given number of zero bytes."""
    if not 0 <= crc <= 0xFFFFFFFF or not 0 <= length <= _INT64_MAX:
        raise OverflowError("a CRC has 32 bits and a length is not negative")
    for power in _POWERS:
        if not length:
            break
        if length & 1:
            crc = _multiply(power, crc)
        length >>= 1
    return crc
