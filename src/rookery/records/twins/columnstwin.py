"""`_columns` in plain Python: the fallback where it was not built, and its oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from rookery.errors import ApiError, Corrupt
from rookery.records import batches
from rookery.records.batches import BatchHeader
from rookery.records.crc import checksum
from rookery.records.reading import (
    CONTROL,
    COUNT,
    CRC,
    CUT,
    FAULTS,
    HEADER,
    KEY,
    NUMBER,
    OFFSETS,
    RECORD_LENGTH,
    RECORD_OFFSET,
    RECORD_TRAILING,
    SHORT,
    TIMESTAMP,
    TRAILING,
    VALUE,
    PartitionBatches,
    ReadSettings,
    bad_magic,
    corrupt,
    inflate,
    too_big,
)
from rookery.records.twins import manycolumns
from rookery.records.twins.packertwin import Packer

_CRC_FROM = 21
_SMALLEST_RECORD = 7
_INT64_MAX = 2**63 - 1
_ONE_BYTE = 0x80  # a number's last byte is below this
_Header: TypeAlias = tuple[bytes, bytes | None]
# Offset, timestamp, key, value, headers, and the size of the last three.
_Row: TypeAlias = tuple[int, int | None, bytes | None, bytes | None, list[_Header], int]
_PLACES = {"offset": 0, "timestamp": 1, "key": 2, "value": 3, "headers": 4}


class _Fault(Exception):  # noqa: N818 (never leaves this file)
    """A record cannot be read: the index of its text in FAULTS."""

    def __init__(self, what: int) -> None:
        super().__init__(FAULTS[what])
        self.what = what


@dataclass(slots=True)
class _Section:
    """The decompressed records of one batch, and the read position."""

    fetched: PartitionBatches
    header: BatchHeader
    data: bytes
    left: int
    position: int = 0


@dataclass(slots=True)
class _Rows:
    """Records as columns, batch by batch."""

    room: int
    """The number of bytes of keys, values and headers that still fit."""
    count: int = 0
    parts: list[list[pa.Array[Any]]] = field(default_factory=list)


__all__ = ["Decoder", "Packer"]


class Decoder:
    """Turns batches into columns; see `_columns.pyi` for the contract of each call."""

    def __init__(self, reading: ReadSettings) -> None:
        self._reading = reading
        self._wants = frozenset(reading.columns)
        self._sections: list[_Section] = []
        self._bytes = 0
        self._rows = 0
        self._fault: Exception | None = None
        self._topics: dict[str, int] = {}

    def open(self, fetched: PartitionBatches) -> None:
        self._fetched = fetched
        self._data = memoryview(fetched.data).cast("B")
        self._position = 0
        self._topics.setdefault(fetched.topic, len(self._topics))
        self._aborted = sorted(fetched.aborted, key=lambda entry: entry[1], reverse=True)
        self._aborting: dict[int, int] = {}  # by producer: the offset of its marker

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
        output = _Rows(self._reading.max_bytes)
        while self._sections and self._fill(self._sections[0], output):
            self._sections.pop(0)
        return self._build(output) if output.count else None

    def _is_full(self) -> bool:
        return self._bytes >= self._reading.max_bytes or self._rows >= self._reading.max_rows

    def _scan(self) -> None:
        while self._fault is None and not self._is_full() and self._position < len(self._data):
            try:
                self._scan_batch()
            except (Corrupt, ApiError) as fault:
                # The rows before the fault are valid, and are returned first.
                self._fault = fault

    def _scan_batch(self) -> None:
        rest = self._data[self._position :]
        offset = int.from_bytes(rest[:8], "big", signed=True)
        if len(rest) > 16 and rest[16] != batches.MAGIC:
            raise bad_magic(self._fetched.topic, self._fetched.partition, offset, rest[16])
        size = batches.OVERHEAD + int.from_bytes(rest[8:12], "big", signed=True)
        if len(rest) >= batches.OVERHEAD and size < batches.HEADER_SIZE:
            raise self._corrupt(offset, SHORT)
        if len(rest) < batches.OVERHEAD or size > len(rest):
            if not self._reading.allow_cut:
                raise self._corrupt(offset, CUT)
            self._position = len(self._data)
            return
        self._scan_whole(rest[:size], batches.parse(rest))
        self._position += size

    def _scan_whole(self, batch: memoryview, header: BatchHeader) -> None:
        offset, delta, count = header.base_offset, header.last_offset_delta, header.record_count
        if offset < 0 or delta < 0 or offset > _INT64_MAX - delta:
            raise self._corrupt(offset, OFFSETS)
        if not 0 <= count <= delta + 1:
            raise self._corrupt(offset, COUNT)
        if offset >= self._fetched.until_offset:
            return
        # The rest of the header is trusted only after this check, so that a flipped bit cannot hide
        # records.
        if self._reading.check_crc and checksum(batch[_CRC_FROM:]) != header.crc:
            raise self._corrupt(offset, CRC)
        if self._is_hidden(batch, header) or offset + delta < self._fetched.from_offset:
            return
        data = self._records(batch, header)
        if count * _SMALLEST_RECORD > len(data):
            raise self._corrupt(offset, COUNT)
        self._sections.append(_Section(self._fetched, header, bytes(data), count))
        self._bytes += len(data)
        self._rows += count

    def _is_hidden(self, batch: memoryview, header: BatchHeader) -> bool:
        while self._aborted and self._aborted[-1][1] <= header.last_offset:
            producer, _, marker = self._aborted.pop()
            self._aborting[producer] = marker
        is_aborting = header.base_offset <= self._aborting.get(header.producer_id, -1)
        if header.is_control:
            if is_aborting and self._is_abort(
                bytes(self._records(batch, header)), header.base_offset
            ):
                del self._aborting[header.producer_id]
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
            raise self._corrupt(offset, CONTROL)
        return bytes(data[position + 2 : position + 4]) == b"\0\0"

    def _records(self, batch: memoryview, header: BatchHeader) -> memoryview:
        records = batch[batches.HEADER_SIZE :]
        codec = header.attributes & batches.CODEC_MASK
        if not codec:
            return records
        limit = self._reading.max_inflated_bytes
        return memoryview(inflate(self._fetched, header.base_offset, codec, records, limit))

    def _corrupt(self, offset: int, what: int) -> Corrupt:
        return corrupt(self._fetched.topic, self._fetched.partition, offset, what)

    def _fill(self, section: _Section, output: _Rows) -> bool:
        """Read as much of a batch as fits; return whether that was all of it."""
        left, start = section.left, section.position
        rows: list[_Row] = []
        try:
            return self._read_all(section, output) or self._read(section, output, rows)
        except _Fault as fault:
            if not output.count:
                raise _corrupt_section(section, fault.what) from None
            return False  # the rows before the fault are valid, and are returned first
        finally:
            self._rows -= left - section.left
            self._bytes -= section.position - start
            if rows:
                output.parts.append(self._columns(section, len(rows), _read_lists(rows)))

    def _read_all(self, section: _Section, output: _Rows) -> bool:
        """Read a whole batch if none of it was read, all of it fits, and it is regular."""
        records = None if section.position else manycolumns.read(section.data, section.left)
        if records is None:
            return False
        columns = manycolumns.ColumnBuilder(section.data, section.header, section.fetched, records)
        room, rows_left = columns.room(self._wants), self._reading.max_rows - output.count
        if room is None or room > output.room or columns.count > rows_left:
            return False
        output.room -= room
        output.count += columns.count
        if columns.count:
            output.parts.append(self._columns(section, columns.count, columns))
        section.position, section.left = len(section.data), 0
        return True

    def _read(self, section: _Section, output: _Rows, rows: list[_Row]) -> bool:
        wants, most = self._wants, self._reading.max_rows
        while section.left:
            row, end = _record(section, wants)
            if row is not None:
                if row[-1] > output.room or output.count == most:
                    if not output.count:
                        raise self._too_big(section, row)
                    return False
                output.room -= row[-1]
                output.count += 1
                rows.append(row)
            section.position = end
            section.left -= 1
        if section.position != len(section.data):
            raise _Fault(TRAILING)
        return True

    def _too_big(self, section: _Section, row: _Row) -> Exception:
        fetched = section.fetched
        limit = self._reading.max_bytes
        return too_big(fetched.topic, fetched.partition, row[0], row[-1], limit)

    def _build(self, output: _Rows) -> pa.RecordBatch:
        columns = [pa.concat_arrays(arrays) for arrays in zip(*output.parts, strict=True)]
        schema = self._reading.schema()
        for place, name in enumerate(schema.names):
            if name == "topic":
                names = pa.array(list(self._topics), pa.string())
                columns[place] = pa.DictionaryArray.from_arrays(columns[place], names)
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _columns(self, section: _Section, count: int, of: _Of) -> list[pa.Array[Any]]:
        """Return the columns of a batch; the topic column contains topic numbers."""
        common = {
            "topic": self._topics[section.fetched.topic],
            "partition": section.fetched.partition,
            "leader_epoch": section.header.partition_leader_epoch,
            "timestamp_type": int(section.header.timestamp_type),
        }
        columns: list[pa.Array[Any]] = []
        for column in self._reading.schema():
            kind = pa.int32() if column.name == "topic" else column.type
            if column.name in common:
                columns.append(pa.repeat(pa.scalar(common[column.name], kind), count))
            else:
                columns.append(of(column.name, kind))
        return columns


_Of: TypeAlias = "Callable[[str, pa.DataType], pa.Array[Any]]"
"""Builds the column of a name and a type."""


def _read_lists(rows: list[_Row]) -> _Of:
    """Return a function that builds columns of records that were read one by one."""
    columns = list(zip(*rows, strict=True))

    def of(name: str, kind: pa.DataType) -> pa.Array[Any]:
        values: Sequence[Any] = columns[_PLACES[name]]
        column: pa.Array[Any] = pa.array(
            list(map(_readable, values)) if name == "headers" else values, kind
        )
        return column

    return of


def _corrupt_section(section: _Section, what: int) -> Corrupt:
    fetched = section.fetched
    return corrupt(fetched.topic, fetched.partition, section.header.base_offset, what)


def _record(section: _Section, wants: frozenset[str]) -> tuple[_Row | None, int]:
    """Read the next record, or None for one out of range; also return its end."""
    data, header, fetched = section.data, section.header, section.fetched
    size, position = _number(data, section.position, len(data), 32)
    end = position + size
    if size < _SMALLEST_RECORD - 1 or end > len(data):
        raise _Fault(RECORD_LENGTH)
    time_delta, position = _number(data, position + 1, end, 64)
    delta, position = _number(data, position, end, 32)
    if not 0 <= delta <= header.last_offset_delta:
        raise _Fault(RECORD_OFFSET)
    offset = header.base_offset + delta
    if not fetched.from_offset <= offset < fetched.until_offset:
        return None, end
    time = _timestamp(header, time_delta) if "timestamp" in wants else None
    return (offset, time, *_contents(data, position, end, wants)), end


def _timestamp(header: BatchHeader, delta: int) -> int | None:
    time = (
        header.max_timestamp
        if header.attributes & batches.LOG_APPEND_TIME
        else header.base_timestamp + delta
    )
    if not -_INT64_MAX - 1 <= time <= _INT64_MAX:
        raise _Fault(TIMESTAMP)
    return None if time == batches.NO_TIMESTAMP else time


def _contents(
    data: bytes, position: int, end: int, wants: frozenset[str]
) -> tuple[bytes | None, bytes | None, list[_Header], int]:
    """Read key, value and headers as requested; also return their size."""
    has_key, has_value, has_headers = "key" in wants, "value" in wants, "headers" in wants
    key = value = None
    headers: list[_Header] = []
    if has_key or has_value or has_headers:
        key, position = _bytes(data, position, end, KEY)
    if has_value or has_headers:
        value, position = _bytes(data, position, end, VALUE)
    room = (len(key) if key and has_key else 0) + (len(value) if value and has_value else 0)
    if has_headers and data[position:end] != b"\0":
        headers = _headers(data, position, end)
        room += sum(len(name) + len(content or b"") for name, content in headers)
    return key, value, headers, room


def _headers(data: bytes, position: int, end: int) -> list[_Header]:
    count, position = _number(data, position, end, 32)
    if not 0 <= count <= (end - position) // 2:
        raise _Fault(HEADER)
    headers: list[_Header] = []
    for _ in range(count):
        name, position = _bytes(data, position, end, HEADER)
        if name is None:
            raise _Fault(HEADER)
        content, position = _bytes(data, position, end, HEADER)
        headers.append((name, content))
    if position != end:
        raise _Fault(RECORD_TRAILING)
    return headers


def _readable(headers: list[_Header]) -> list[tuple[str, bytes | None]]:
    # C clients may write any bytes as a header's key, but Arrow's strings must be UTF-8.
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
    raise _Fault(NUMBER)
