"""Decodes JSON objects to a struct: missing fields are null, unknown fields are ignored.

The schema `variant` accepts any JSON, which stays one column (`decode/variant.py`).

Whole blocks go through Arrow's parser. Only rejected blocks are decoded row by row (`jsonrows`).
That finds the reasons, and reads types that Arrow cannot: maps, and binary as base64. Times are ISO
8601 text; those without a zone are UTC.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

import pyarrow as pa
from pyarrow import json as arrow_json

from rookery.decode import ddl, jsonrows, variant
from rookery.decode.frames import decode_framed
from rookery.decode.port import Array, BadRow, Decoder, DecodeResult, DecoderSettings, bad_row
from rookery.decode.rows import compute, decode_present, halve, map_rows, spread, to_list
from rookery.errors import ConfigError

_MAX_BLOCK_BYTES: Final = 64 << 20
"""Arrow uses 31-bit sizes for a block, and parsing needs a few times its size."""
_ROW: Final = re.compile(r"in row (\d{1,9})$")
"""The part of Arrow's message that names the row it cannot parse."""


class _Json:
    def __init__(self, schema: pa.Schema, *, is_framed: bool) -> None:
        self._schema = schema
        self._is_framed = is_framed
        self._type = pa.struct(list(schema))
        self._convert = jsonrows.converter(self._type)
        self._reads_blocks = all(_is_parsed_by_arrow(field.type) for field in schema)
        # Arrow reads dates only as numbers of days; dates as text are cast afterwards.
        self._parsed = pa.schema([field.with_type(_replace_dates(field.type)) for field in schema])

    @property
    def type(self) -> pa.DataType:
        return self._type

    def decode(self, column: Array) -> DecodeResult:
        whole = self._decode_framed if self._is_framed else self._decode
        return decode_present(column, self._type, whole)

    def _decode_framed(self, column: Array) -> DecodeResult:
        # Every value names its fields, so the writer's schema is not needed.
        return decode_framed(column, self._type, lambda _, payload: self._decode(payload))

    def _decode(self, column: Array) -> DecodeResult:
        if not self._reads_blocks:
            return self._singly(to_list(column))
        is_object = _are_objects(column)
        others = compute.indices_nonzero(compute.invert(is_object))
        if not len(others):
            return halve(column, self._type, self._block, self._singly)
        rows = compute.indices_nonzero(is_object)
        objects = halve(column.take(rows), self._type, self._block, self._singly)
        rest = self._singly(to_list(column.take(others)))
        values = spread([(rows, objects.values), (others, rest.values)], len(column), self._type)
        bad = map_rows(objects.bad, rows) + map_rows(rest.bad, others)
        return DecodeResult(values, tuple(sorted(bad, key=lambda reject: reject.row)))

    def _block(self, column: Array) -> Array | int | None:
        text = _join(column)
        if text is None:
            return None
        try:
            table = arrow_json.read_json(
                cast("Any", pa.BufferReader(text)),
                read_options=arrow_json.ReadOptions(use_threads=False, block_size=text.size + 1),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=self._parsed, unexpected_field_behavior="ignore"
                ),
            )
            # A row could hold two objects: then the rows do not match the input.
            if table.num_rows != len(column):
                return None
            batch = table.combine_chunks().to_batches()[0]
            return pa.StructArray.from_arrays(batch.columns, fields=list(self._parsed)).cast(
                self._type
            )
        except pa.ArrowException as error:
            match = _ROW.search(str(error))
            return int(match[1]) if match else None

    def _singly(self, rows: list[bytes]) -> DecodeResult:
        values: list[dict[str, Any] | None] = []
        bad: list[tuple[int, bytes, str]] = []
        for row, data in enumerate(rows):
            try:
                values.append(self._convert_row(data))
            except jsonrows.FieldMismatch as error:
                values.append(None)
                bad.append((row, data, str(error)))
        whole = self._build(rows, values, bad)
        if not bad or not self._reads_blocks:
            return DecodeResult(whole, tuple(bad_row(row, reason) for row, _, reason in bad))
        return self._with_second_looks(whole, bad)

    def _build(
        self,
        rows: list[bytes],
        values: list[dict[str, Any] | None],
        bad: list[tuple[int, bytes, str]],
    ) -> Array:
        try:
            return pa.array(values, self._type)
        except (pa.ArrowException, ValueError, OverflowError):
            # Everything was checked; if Arrow still rejects it, a single row is at fault.
            for row, value in enumerate(values):
                try:
                    pa.array([value], self._type)
                except (pa.ArrowException, ValueError, OverflowError) as error:
                    values[row] = None
                    bad.append((row, rows[row], f"not decoded: {error}"))
            bad.sort()
            return pa.array(values, self._type)

    def _convert_row(self, data: bytes) -> dict[str, Any]:
        value = jsonrows.loads(data)
        if not isinstance(value, dict):
            raise jsonrows.FieldMismatch("not an object: the value must begin with {")
        converted: dict[str, Any] = self._convert(value, "")
        return converted

    def _with_second_looks(self, whole: Array, bad: list[tuple[int, bytes, str]]) -> DecodeResult:
        """Retry rejected rows with Arrow: a row that it accepts in a block must pass alone, too.

        Otherwise the result of a row would depend on its neighbours.
        """
        still: list[BadRow] = []
        for row, data, reason in bad:
            alone = pa.array([data], pa.binary())
            retried = self._block(alone) if jsonrows.is_unsure(data, reason) else None
            if retried is None or isinstance(retried, int):
                still.append(bad_row(row, reason))
            else:
                whole = pa.concat_arrays([whole.slice(0, row), retried, whole.slice(row + 1)])
        return DecodeResult(whole, tuple(still))


class _Variant:
    """Accepts any JSON unchanged."""

    def __init__(self, *, is_framed: bool) -> None:
        self._is_framed = is_framed

    @property
    def type(self) -> pa.DataType:
        return variant.TEXT

    def decode(self, column: Array) -> DecodeResult:
        whole = self._decode_framed if self._is_framed else self._decode
        result = decode_present(column, pa.string(), whole)
        text = cast("Any", pa.ExtensionArray).from_storage(variant.TEXT, result.values)
        return DecodeResult(text, result.bad)

    def _decode_framed(self, column: Array) -> DecodeResult:
        return decode_framed(column, pa.string(), lambda _, payload: self._decode(payload))

    def _decode(self, column: Array) -> DecodeResult:
        texts: list[str | None] = []
        bad: list[BadRow] = []
        for row, data in enumerate(to_list(column)):
            try:
                texts.append(variant.check_json(data))
            except jsonrows.FieldMismatch as error:
                texts.append(None)
                bad.append(bad_row(row, str(error)))
        return DecodeResult(pa.array(texts, pa.string()), tuple(bad))


def _are_objects(column: Array) -> Array:
    """Return which rows begin and end like an object, without surrounding space.

    Such rows, separated by line feeds, cannot run into each other. A closing brace, a line feed and
    an opening brace occur in JSON only between two objects, since strings must escape a line feed.
    """
    mask: Array = compute.and_(compute.starts_with(column, "{"), compute.ends_with(column, "}"))
    return mask


def _join(column: Array) -> pa.Buffer | None:
    """Join the rows with line feeds; None if they exceed a block, or are not UTF-8."""
    size = compute.sum(compute.binary_length(column)).as_py() + len(column)
    if size > _MAX_BLOCK_BYTES:
        return None
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        return None
    rows = pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column)
    return cast("pa.Buffer", compute.binary_join(rows, b"\n")[0].as_buffer())


def _is_parsed_by_arrow(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_parsed_by_arrow(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _is_parsed_by_arrow(kind.value_type)
    return not (pa.types.is_map(kind) or pa.types.is_binary(kind) or pa.types.is_large_list(kind))


def _replace_dates(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_replace_dates(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_replace_dates(kind.value_type)))
    return pa.string() if pa.types.is_date32(kind) else kind


def open(settings: DecoderSettings) -> Decoder:  # noqa: A001 (the plug's interface)
    """Create a decoder for the fields of `schema`: DDL text, an Arrow schema, or `variant`."""
    schema = settings.schema
    if isinstance(schema, str) and variant.is_named(schema):
        return _Variant(is_framed=settings.registry is not None)
    if isinstance(schema, str):
        schema = ddl.parse(schema)
    if not isinstance(schema, pa.Schema) or not len(schema):
        raise ConfigError(
            'decoder json: set schema to the fields wanted, such as "id long, name string", or to'
            ' "variant" if they are not known'
        )
    for field in schema:
        if not jsonrows.supports(field.type):
            raise ConfigError(f"decoder json: field {field.name!r} cannot be {field.type} in JSON")
    return _Json(_nullable(schema), is_framed=settings.registry is not None)


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(nullable=True) for field in schema])
