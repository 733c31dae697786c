"""Encodes rows to records in plain Python, for `columnstwin`."""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow as pa

from rookery.records import batches
from rookery.records.reading import INT32_MAX
from rookery.records.varint import zigzag
from rookery.records.writing import LAST_TIMESTAMP, bad_header, bad_offset, bad_timestamp, too_large

Packed: TypeAlias = tuple[bytearray, int, int, int, int, int]


class Packer:
    """Turns rows into records; see `_columns.pyi` for the contract of each call."""

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
        out = bytearray(batches.HEADER_SIZE)
        base = base_offset if self._offsets[start] is None else self._offsets[start]
        base_time = highest = self._times[start]
        delta = -1
        row = start
        while row < self._rows:
            step = self._delta(row, start, base, delta)
            record = self._record(row, base_time, step)
            if len(record) > limit and row == start:
                raise too_large(row, len(record), limit)
            if len(out) - batches.HEADER_SIZE + len(record) > limit or step > INT32_MAX:
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
        if self._times[row] < batches.NO_TIMESTAMP or self._times[row] > LAST_TIMESTAMP:
            raise bad_timestamp(row)
        headers = self._headers[row] or ()
        body = b"".join(
            (
                b"\0",
                zigzag(self._times[row] - base_time),
                zigzag(delta),
                _add_size(self._keys[row]),
                _add_size(self._values[row]),
                zigzag(len(headers)),
                *(part for header in headers for part in _header(row, header)),
            )
        )
        return zigzag(len(body)) + body


def _header(row: int, header: dict[str, Any] | None) -> tuple[bytes, bytes]:
    if header is None or header["key"] is None:
        raise bad_header(row)
    return _add_size(header["key"].encode()), _add_size(header["value"])


def _add_size(content: bytes | None) -> bytes:
    return b"\1" if content is None else zigzag(len(content)) + content
