"""The work of `_columns` in plain Python: its fallback where it was not built, and its oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, TypeAlias

import pyarrow as pa

from rookery.errors import ApiError, Corrupt
from rookery.records import batch as b
from rookery.records import reading as r
from rookery.records.batch import BatchHeader
from rookery.records.crc import checksum
from rookery.records.reading import Fetched, Reading
from rookery.records.writing import LAST_TIMESTAMP, bad_header, bad_offset, bad_timestamp, too_large

_CRC_FROM = 21
_SMALLEST_RECORD = 7
_INT64_MAX = 2**63 - 1
_ONE_BYTE = 0x80  # what a number's last byte is below
_Header: TypeAlias = tuple[bytes, bytes | None]
# Offset, timestamp, key, value, headers, and how much room the last three take.
_Row: TypeAlias = tuple[int, int | None, bytes | None, bytes | None, list[_Header], int]
_PLACES = {"offset": 0, "timestamp": 1, "key": 2, "value": 3, "headers": 4}
Packed: TypeAlias = tuple[bytearray, int, int, int, int, int]


class _Fault(Exception):  # noqa: N818 (never leaves this file)
    """A record cannot be read: the place of its text in FAULTS."""

    def __init__(self, what: int) -> None:
        super().__init__(r.FAULTS[what])
        self.what = what


@dataclass(slots=True)
class _Section:
    """The records of one batch, uncompressed, and how far they were read."""

    fetched: Fetched
    header: BatchHeader
    data: bytes
    left: int
    position: int = 0


@dataclass(slots=True)
class _Rows:
    """Records, as far as they were asked for, and the batches that they are of."""

    room: int
    """How many bytes of keys, values and headers there may yet be."""
    rows: list[_Row] = field(default_factory=list)
    runs: list[tuple[_Section, int]] = field(default_factory=list)
    """How many rows each batch gave."""


class Decoder:
    """Turn batches into columns; see `_columns.pyi` for what each call promises."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._wants = frozenset(reading.columns)
        self._sections: list[_Section] = []
        self._bytes = 0
        self._rows = 0
        self._fault: Exception | None = None
        self._topics: dict[str, int] = {}

    def open(self, fetched: Fetched) -> None:
        self._fetched = fetched
        self._data = memoryview(fetched.data).cast("B")
        self._position = 0
        self._topics.setdefault(fetched.topic, len(self._topics))
        self._aborted = sorted(fetched.aborted, key=lambda entry: entry[1], reverse=True)
        self._aborting: set[int] = set()

    def take(self) -> pa.RecordBatch | None:
        while True:
            self._scan()
            if not self._is_full() and self._fault is None:
                return None
            rows = self.drain()
            if rows is not None:
                return rows
            if self._fault is not None:
                raise self._fault

    def drain(self) -> pa.RecordBatch | None:
        found = _Rows(self._reading.max_bytes)
        while self._sections and self._fill(self._sections[0], found):
            self._sections.pop(0)
        return self._build(found) if found.rows else None

    def _is_full(self) -> bool:
        return self._bytes >= self._reading.max_bytes or self._rows >= self._reading.max_rows

    def _scan(self) -> None:
        while self._fault is None and not self._is_full() and self._position < len(self._data):
            try:
                self._scan_batch()
            except (Corrupt, ApiError) as fault:
                # What came before it is still good, and goes out first.
                self._fault = fault

    def _scan_batch(self) -> None:
        rest = self._data[self._position :]
        offset = int.from_bytes(rest[:8], "big", signed=True)
        if len(rest) > 16 and rest[16] != b.MAGIC:
            raise r.bad_magic(self._fetched.topic, self._fetched.partition, offset, rest[16])
        size = b.OVERHEAD + int.from_bytes(rest[8:12], "big", signed=True)
        if len(rest) >= b.OVERHEAD and size < b.HEADER_SIZE:
            raise self._corrupt(offset, r.SHORT)
        if len(rest) < b.OVERHEAD or size > len(rest):
            if not self._reading.allow_cut:
                raise self._corrupt(offset, r.CUT)
            self._position = len(self._data)
            return
        self._scan_whole(rest[:size], b.parse(rest))
        self._position += size

    def _scan_whole(self, batch: memoryview, header: BatchHeader) -> None:
        offset, delta, count = header.base_offset, header.last_offset_delta, header.record_count
        if offset < 0 or delta < 0 or offset > _INT64_MAX - delta:
            raise self._corrupt(offset, r.OFFSETS)
        if not 0 <= count <= delta + 1:
            raise self._corrupt(offset, r.COUNT)
        if offset >= self._fetched.until_offset:
            return
        # Nothing else in the header is believed before this, lest a flipped bit hide records.
        if self._reading.check_crc and checksum(batch[_CRC_FROM:]) != header.crc:
            raise self._corrupt(offset, r.CRC)
        if self._is_hidden(batch, header) or offset + delta < self._fetched.from_offset:
            return
        data = self._records(batch, header)
        if count * _SMALLEST_RECORD > len(data):
            raise self._corrupt(offset, r.COUNT)
        self._sections.append(_Section(self._fetched, header, bytes(data), count))
        self._bytes += len(data)
        self._rows += count

    def _is_hidden(self, batch: memoryview, header: BatchHeader) -> bool:
        while self._aborted and self._aborted[-1][1] <= header.last_offset:
            self._aborting.add(self._aborted.pop()[0])
        is_aborting = header.producer_id in self._aborting
        if header.is_control:
            if is_aborting and self._is_abort(
                bytes(self._records(batch, header)), header.base_offset
            ):
                self._aborting.discard(header.producer_id)
            return True
        return header.is_transactional and is_aborting

    def _is_abort(self, data: bytes, offset: int) -> bool:
        try:
            _, position = _number(data, 0, len(data), 32)
            _, position = _number(data, position + 1, len(data), 64)
            _, position = _number(data, position, len(data), 32)
            size, position = _number(data, position, len(data), 32)
        except _Fault:
            size, position = 0, 0
        if size < 4 or size > len(data) - position:
            raise self._corrupt(offset, r.CONTROL)
        return bytes(data[position + 2 : position + 4]) == b"\0\0"

    def _records(self, batch: memoryview, header: BatchHeader) -> memoryview:
        records = batch[b.HEADER_SIZE :]
        codec = header.attributes & b.CODEC_MASK
        if not codec:
            return records
        limit = self._reading.max_inflated_bytes
        return memoryview(r.inflate(self._fetched, header.base_offset, codec, records, limit))

    def _corrupt(self, offset: int, what: int) -> Corrupt:
        return r.corrupt(self._fetched.topic, self._fetched.partition, offset, what)

    def _fill(self, section: _Section, found: _Rows) -> bool:
        """Read what fits of a batch; return whether that was all of it."""
        before, left, start = len(found.rows), section.left, section.position
        try:
            is_whole = self._read(section, found)
        except _Fault as fault:
            if not found.rows:
                raise _corrupt_section(section, fault.what) from None
            return False  # what came before it is still good, and goes out first
        finally:
            self._rows -= left - section.left
            self._bytes -= section.position - start
            found.runs.append((section, len(found.rows) - before))
        return is_whole

    def _read(self, section: _Section, found: _Rows) -> bool:
        rows, wants, most = found.rows, self._wants, self._reading.max_rows
        while section.left:
            row, end = _record(section, wants)
            if row is not None:
                if row[-1] > found.room or len(rows) == most:
                    if not rows:
                        raise self._too_big(section, row)
                    return False
                found.room -= row[-1]
                rows.append(row)
            section.position = end
            section.left -= 1
        if section.position != len(section.data):
            raise _Fault(r.TRAILING)
        return True

    def _too_big(self, section: _Section, row: _Row) -> Exception:
        fetched = section.fetched
        limit = self._reading.max_bytes
        return r.too_big(fetched.topic, fetched.partition, row[0], row[-1], limit)

    def _build(self, found: _Rows) -> pa.RecordBatch:
        columns = list(zip(*found.rows, strict=True))
        arrays = [self._column(name, columns, found) for name in self._reading.columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._reading.schema())

    def _column(self, name: str, columns: list[tuple[Any, ...]], found: _Rows) -> pa.Array[Any]:
        values: Sequence[Any]
        match name:
            case "topic":
                return self._topic(found)
            case "partition":
                values = _repeated(found, lambda one: one.fetched.partition)
            case "leader_epoch":
                values = _repeated(found, lambda one: one.header.partition_leader_epoch)
            case "timestamp_type":
                values = _repeated(found, lambda one: int(one.header.timestamp_type))
            case "headers":
                values = list(map(_readable, columns[_PLACES[name]]))
            case _:
                values = columns[_PLACES[name]]
        column: pa.Array[Any] = pa.array(values, self._reading.schema().field(name).type)
        return column

    def _topic(self, found: _Rows) -> pa.Array[Any]:
        indices = _repeated(found, lambda one: self._topics[one.fetched.topic])
        names = pa.array(list(self._topics), pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), names)


def _repeated(found: _Rows, of: Callable[[_Section], int]) -> list[int]:
    """Return what each batch's rows have in common, once for each row."""
    return [value for one, count in found.runs for value in repeat(of(one), count)]


def _corrupt_section(section: _Section, what: int) -> Corrupt:
    fetched = section.fetched
    return r.corrupt(fetched.topic, fetched.partition, section.header.base_offset, what)


def _record(section: _Section, wants: frozenset[str]) -> tuple[_Row | None, int]:
    """Read the next record, or None for one out of range; and where it ends."""
    data, header, fetched = section.data, section.header, section.fetched
    size, position = _number(data, section.position, len(data), 32)
    end = position + size
    if size < _SMALLEST_RECORD - 1 or end > len(data):
        raise _Fault(r.RECORD_LENGTH)
    time_delta, position = _number(data, position + 1, end, 64)
    delta, position = _number(data, position, end, 32)
    if not 0 <= delta <= header.last_offset_delta:
        raise _Fault(r.RECORD_OFFSET)
    offset = header.base_offset + delta
    if not fetched.from_offset <= offset < fetched.until_offset:
        return None, end
    time = _timestamp(header, time_delta) if "timestamp" in wants else None
    return (offset, time, *_contents(data, position, end, wants)), end


def _timestamp(header: BatchHeader, delta: int) -> int | None:
    time = (
        header.max_timestamp
        if header.attributes & b.LOG_APPEND_TIME
        else header.base_timestamp + delta
    )
    if not -_INT64_MAX - 1 <= time <= _INT64_MAX:
        raise _Fault(r.TIMESTAMP)
    return None if time == b.NO_TIMESTAMP else time


def _contents(
    data: bytes, position: int, end: int, wants: frozenset[str]
) -> tuple[bytes | None, bytes | None, list[_Header], int]:
    """Read key, value and headers as far as they are wanted; and how much room they take."""
    has_key, has_value, has_headers = "key" in wants, "value" in wants, "headers" in wants
    key = value = None
    headers: list[_Header] = []
    if has_key or has_value or has_headers:
        key, position = _bytes(data, position, end, r.KEY)
    if has_value or has_headers:
        value, position = _bytes(data, position, end, r.VALUE)
    room = (len(key) if key and has_key else 0) + (len(value) if value and has_value else 0)
    if has_headers and data[position:end] != b"\0":
        headers = _headers(data, position, end)
        room += sum(len(name) + len(content or b"") for name, content in headers)
    return key, value, headers, room


def _headers(data: bytes, position: int, end: int) -> list[_Header]:
    count, position = _number(data, position, end, 32)
    if not 0 <= count <= (end - position) // 2:
        raise _Fault(r.HEADER)
    headers: list[_Header] = []
    for _ in range(count):
        name, position = _bytes(data, position, end, r.HEADER)
        if name is None:
            raise _Fault(r.HEADER)
        content, position = _bytes(data, position, end, r.HEADER)
        headers.append((name, content))
    if position != end:
        raise _Fault(r.RECORD_TRAILING)
    return headers


def _readable(headers: list[_Header]) -> list[tuple[str, bytes | None]]:
    # C clients may write any bytes as a header's key, Arrow's strings must be UTF-8.
    return [(name.decode("utf-8", "replace"), content) for name, content in headers]


def _bytes(data: bytes, position: int, end: int, what: int) -> tuple[bytes | None, int]:
    size, position = _number(data, position, end, 32)
    stop = position + size
    if size < -1 or stop > end:
        raise _Fault(what)
    if size < 0:
        return None, position
    return data[position:stop], stop


def _number(data: bytes, position: int, end: int, bits: int) -> tuple[int, int]:
    if position < end and (byte := data[position]) < _ONE_BYTE:  # as in most
        return (byte >> 1) ^ -(byte & 1), position + 1
    result = shift = 0
    while position < end and shift < bits:
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        if byte < _ONE_BYTE:
            if result >> bits:
                break
            return (result >> 1) ^ -(result & 1), position
        shift += 7
    raise _Fault(r.NUMBER)


class Packer:
    """Turn rows into records; see `_columns.pyi` for what each call promises."""

    def __init__(self, rows: pa.RecordBatch, timestamp_ms: int) -> None:
        self._rows = rows.num_rows
        self._names = rows.schema.names
        self._keys = self._list(rows, "key")
        self._values = self._list(rows, "value")
        self._headers = self._list(rows, "headers")
        self._offsets = self._list(rows, "offset")
        times = self._list(rows, "timestamp")
        self._times = [timestamp_ms if time is None else time for time in times]

    def _list(self, rows: pa.RecordBatch, name: str) -> list[Any]:
        return rows.column(name).to_pylist() if name in self._names else [None] * self._rows

    def pack(self, start: int, base_offset: int, limit: int) -> Packed:
        out = bytearray(b.HEADER_SIZE)
        base = base_offset if self._offsets[start] is None else self._offsets[start]
        base_time = highest = self._times[start]
        delta = -1
        row = start
        while row < self._rows:
            step = self._delta(row, start, base, delta)
            record = self._record(row, base_time, step)
            if len(record) > limit and row == start:
                raise too_large(row, len(record), limit)
            if len(out) - b.HEADER_SIZE + len(record) > limit or step > r.INT32_MAX:
                break
            out += record
            delta, row, highest = step, row + 1, max(highest, self._times[row])
        return out, row - start, base, delta, base_time, highest

    def _delta(self, row: int, start: int, base: int, last: int) -> int:
        if self._offsets[row] is None:
            return row - start
        delta: int = self._offsets[row] - base
        if delta <= last or base < 0:
            raise bad_offset(row)
        return delta

    def _record(self, row: int, base_time: int, delta: int) -> bytes:
        if self._times[row] < b.NO_TIMESTAMP or self._times[row] > LAST_TIMESTAMP:
            raise bad_timestamp(row)
        headers = self._headers[row] or ()
        body = b"".join(
            (
                b"\0",
                _zigzag(self._times[row] - base_time),
                _zigzag(delta),
                _sized(self._keys[row]),
                _sized(self._values[row]),
                _zigzag(len(headers)),
                *(part for header in headers for part in _header(row, header)),
            )
        )
        return _zigzag(len(body)) + body


def _header(row: int, header: dict[str, Any] | None) -> tuple[bytes, bytes]:
    if header is None or header["key"] is None:
        raise bad_header(row)
    return _sized(header["key"].encode()), _sized(header["value"])


def _sized(content: bytes | None) -> bytes:
    return b"\1" if content is None else _zigzag(len(content)) + content


def _zigzag(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
