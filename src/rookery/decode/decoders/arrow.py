"""Decodes values that are Arrow IPC streams of one row each, all with one schema.

An Arrow stream can hold a whole batch of rows, but here each record of a topic is one row.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from rookery.decode import ddl
from rookery.decode.port import Array, Decoder, DecodeResult, DecoderSettings
from rookery.decode.rows import decode_present, halve, one_by_one
from rookery.errors import ConfigError

_MAX_VALUE_BYTES: Final = 64 << 20


class _Arrow:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._type = pa.struct(list(schema))

    @property
    def type(self) -> pa.DataType:
        return self._type

    def decode(self, column: Array) -> DecodeResult:
        return decode_present(column, self._type, self._decode)

    def _decode(self, column: Array) -> DecodeResult:
        # Every value is a separate stream, so there is no block to try first.
        return halve(column, self._type, lambda _: None, one_by_one(self._type, self._row))

    def _row(self, data: bytes) -> Array | str:
        if len(data) > _MAX_VALUE_BYTES:
            return f"not decoded: {len(data)} bytes, {_MAX_VALUE_BYTES} are allowed"
        try:
            with pa.ipc.open_stream(pa.py_buffer(data)) as stream:
                return self._fit(stream)
        except (pa.ArrowException, OSError, ValueError, TypeError) as error:
            return f"not an Arrow stream of the schema wanted: {error}"

    def _fit(self, stream: pa.RecordBatchStreamReader) -> Array | str:
        first = next(iter(stream), None)
        if first is None or first.num_rows != 1 or next(iter(stream), None) is not None:
            return "not one row: a value must be an Arrow stream of one batch with one row"
        # Foreign data may contain wrong offsets; reading it unchecked could crash.
        first.validate(full=True)
        names = set(first.schema.names)
        columns = [
            first.column(field.name).cast(field.type)
            if field.name in names
            else pa.nulls(1, field.type)
            for field in self._schema
        ]
        return pa.StructArray.from_arrays(columns, fields=list(self._schema))


def open(settings: DecoderSettings) -> Decoder:  # noqa: A001 (the plug's interface)
    """Create a decoder for the fields of `schema`, which is DDL text or an Arrow schema."""
    schema = settings.schema
    if isinstance(schema, str):
        schema = ddl.parse(schema)
    if not isinstance(schema, pa.Schema) or not len(schema):
        raise ConfigError(
            'decoder arrow: set schema to the fields wanted, such as "id long, name string"'
        )
    return _Arrow(pa.schema([field.with_nullable(nullable=True) for field in schema]))
