"""The sieve in pure Python: the fallback without compiled code, and the oracle in tests."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rookery.errors import Corrupt

if TYPE_CHECKING:
    from rookery.records._kernel import RawHeader
    from rookery.records._sieve import Sifted

Buffer: TypeAlias = bytes | bytearray | memoryview

SLOT_BYTES = 180  # a digest and a number as objects, and their entry in a dict
_SEED_BYTES, _DIGEST_BYTES, _MIN_RECORD = 16, 16, 7
_LOG_APPEND_TIME = 8
_INT64_MAX, _INT64_MIN = 2**63 - 1, -(2**63)

_BAD_VARINT = "a varint is cut off or too long"
_BAD_LENGTH = "its length does not fit into the batch"
_BAD_FIELD = "its key or value does not fit into it"
_BAD_OFFSET = "its offset is out of order"
_BAD_TIMESTAMP = "its timestamp is out of range"
_LEFT_OVER = "bytes are left over after it"


class _Frame(NamedTuple):
    """The position of a record, and its timestamp delta."""

    begin: int
    end: int
    time_at: int
    offset_at: int
    time_delta: int


class _Span(NamedTuple):
    """The fields of a record that compaction reads."""

    begin: int
    end: int
    offset: int
    timestamp: int
    key: bytes | None
    has_value: bool


class OffsetMap:
    """The last offset of every key, identified by a keyed 16-byte digest."""

    def __init__(self, max_bytes: int, seed: bytes) -> None:
        if len(seed) != _SEED_BYTES:
            raise ValueError(f"a seed has {_SEED_BYTES} bytes")
        self.capacity = max(max_bytes // SLOT_BYTES, 1)
        self._seed = seed
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def note(self, data: Buffer, header: RawHeader, /) -> bool:
        """Add the keys of a batch's records; return False and add none if not all fit."""
        if header[12] > self.capacity - len(self._offsets):
            return False
        for span in list(_spans(data, header)):
            if span.key is not None:
                digest = self._digest(span.key)
                self._offsets[digest] = max(self._offsets.get(digest, -1), span.offset)
        return True

    def sift(self, data: Buffer, header: RawHeader, drops_tombstones: bool, /) -> Sifted:  # noqa: FBT001 (a kernel's)
        """Remove records whose key has a later offset, and tombstones if allowed."""
        view = memoryview(data)
        kept = [
            span
            for span in _spans(data, header)
            if span.key is None
            or (
                self._offsets.get(self._digest(span.key), -1) <= span.offset
                and (span.has_value or not drops_tombstones)
            )
        ]
        tombstones = sum(span.key is not None and not span.has_value for span in kept)
        highest = max((span.timestamp for span in kept), default=-1)
        is_whole = len(kept) == header[12]
        body = None if is_whole else b"".join(view[span.begin : span.end] for span in kept)
        return len(kept), tombstones, max(highest, -1), body

    def _digest(self, key: bytes) -> bytes:
        return blake2b(key, digest_size=_DIGEST_BYTES, key=self._seed).digest()


def rebase(data: Buffer, count: int, shift: int, /) -> bytes:
    """Rewrite records with `shift` added to their timestamp deltas."""
    view = memoryview(data).cast("B")
    if not 0 <= count <= len(view) // _MIN_RECORD:
        raise Corrupt(f"{count} records do not fit into {len(view)} bytes")
    out = bytearray()
    at = 0
    for index in range(count):
        frame = _frame(view, at, index)
        at = frame.end
        if not _INT64_MIN <= frame.time_delta + shift <= _INT64_MAX:
            raise _make_error(index, _BAD_TIMESTAMP)
        time = _varlong(frame.time_delta + shift)
        rest = view[frame.offset_at : frame.end]
        out += _varlong(1 + len(time) + len(rest))
        out.append(view[frame.time_at - 1])
        out += time
        out += rest
    if at != len(view):
        raise _make_error(max(count - 1, 0), _LEFT_OVER)
    return bytes(out)


def _spans(data: Buffer, header: RawHeader) -> Iterator[_Span]:
    view = memoryview(data).cast("B")
    at, last = 0, header[0] - 1
    for index in range(header[12]):
        span = _span(view, _frame(view, at, index), header, index)
        if span.offset <= last:
            raise _make_error(index, _BAD_OFFSET)
        yield span
        at, last = span.end, span.offset
    if at != len(view):
        raise _make_error(max(header[12] - 1, 0), _LEFT_OVER)


def _frame(view: memoryview, at: int, index: int) -> _Frame:
    begin = at
    length, at = _number(view, at, len(view), 32, index)
    if length < 1 or length > len(view) - at:
        raise _make_error(index, _BAD_LENGTH)
    end = at + length
    time_delta, offset_at = _number(view, at + 1, end, 64, index)
    return _Frame(begin, end, at + 1, offset_at, time_delta)


def _span(view: memoryview, frame: _Frame, header: RawHeader, index: int) -> _Span:
    delta, at = _number(view, frame.offset_at, frame.end, 32, index)
    if not 0 <= delta <= header[6]:
        raise _make_error(index, _BAD_OFFSET)
    key_size, key_at = _field(view, at, frame.end, index)
    after = key_at + max(key_size, 0)
    value_size, _ = _field(view, after, frame.end, index)
    timestamp = header[8]
    if not header[5] & _LOG_APPEND_TIME:
        timestamp = header[7] + frame.time_delta
        if not _INT64_MIN <= timestamp <= _INT64_MAX:
            raise _make_error(index, _BAD_TIMESTAMP)
    key = None if key_size < 0 else bytes(view[key_at:after])
    return _Span(frame.begin, frame.end, header[0] + delta, timestamp, key, value_size >= 0)


def _field(view: memoryview, at: int, end: int, index: int) -> tuple[int, int]:
    size, at = _number(view, at, end, 32, index)
    if size < -1 or size > end - at:
        raise _make_error(index, _BAD_FIELD)
    return size, at


def _number(view: memoryview, at: int, end: int, bits: int, index: int) -> tuple[int, int]:
    value = by = 0
    while at < end and by < bits:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << by
        if byte < 0x80:
            if value >> bits:
                break
            return (value >> 1) ^ -(value & 1), at
        by += 7
    raise _make_error(index, _BAD_VARINT)


def _varlong(value: int) -> bytes:
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def _make_error(index: int, what: str) -> Corrupt:
    return Corrupt(f"record {index}: {what}")
