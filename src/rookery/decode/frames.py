"""Decodes values with a schema id: a zero byte, the id in 4 bytes (big-endian), the payload.

Rows are grouped by id, decoded one schema at a time, and put back in their order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from rookery.decode.port import Array, BadRow, DecodeResult, bad_row
from rookery.decode.registry import UnknownSchema
from rookery.decode.rows import Part, compute, map_rows, spread, to_list, without_head

FRAME_BYTES: Final = 5
_MAX_UNKNOWN: Final = 32
"""The maximum number of unknown ids to look up in a batch: bytes without frames look like many
different ids."""

OfSchema = Callable[[int, Array], DecodeResult]
"""Decodes the payloads of one schema id; it may raise `UnknownSchema`."""


def decode_framed(column: Array, kind: pa.DataType, decode: OfSchema) -> DecodeResult:
    """Decode rows by the schema that each row names."""
    parts: list[Part] = []
    bad: list[BadRow] = []
    unknown = 0
    for frame, rows in _groups(column):
        schema_id = _schema_id(frame)
        if schema_id is None:
            bad += _all_bad(rows, f"no schema id: the value begins with {frame.hex() or 'nothing'}")
            continue
        if unknown >= _MAX_UNKNOWN:
            text = f"schema {schema_id} was not looked up: too many unknown ids among its batch"
            bad += _all_bad(rows, text, schema_id)
            continue
        try:
            members = column if len(rows) == len(column) else column.take(rows)
            result = decode(schema_id, without_head(members, FRAME_BYTES))
        except UnknownSchema as error:
            unknown += 1
            bad += _all_bad(rows, str(error), schema_id)
            continue
        parts.append((rows, result.values))
        bad += [
            BadRow(reject.row, reject.reason, schema_id) for reject in map_rows(result.bad, rows)
        ]
    is_whole = len(parts) == 1 and len(parts[0][0]) == len(column)
    values = parts[0][1] if is_whole else spread(parts, len(column), kind)
    return DecodeResult(values, tuple(sorted(bad, key=lambda reject: reject.row)))


def _groups(column: Array) -> list[tuple[bytes, Array]]:
    """Group rows by their frame, the largest group first, since real schemas have many rows."""
    frames = compute.binary_slice(column, 0, FRAME_BYTES).dictionary_encode()
    # Codes and counts are in order of appearance; the sort is stable.
    counts = compute.value_counts(frames.indices).field("counts").to_pylist()
    order = compute.array_sort_indices(frames.indices)
    groups, at = [], 0
    for frame, count in zip(frames.dictionary.to_pylist(), counts, strict=True):
        groups.append((frame, order.slice(at, count)))
        at += count
    return sorted(groups, key=lambda group: -len(group[1]))


def _schema_id(frame: bytes) -> int | None:
    is_frame = len(frame) == FRAME_BYTES and frame[0] == 0
    return int.from_bytes(frame[1:], "big") if is_frame else None


def _all_bad(rows: Array, reason: str, schema_id: int | None = None) -> list[BadRow]:
    return [bad_row(row, reason, schema_id) for row in to_list(rows)]
