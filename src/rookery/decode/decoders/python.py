"""Decodes with a user function, called once per batch: binary column in, equally long column out.

If it raises, it is called again with smaller and smaller parts, down to single rows. Rows for which
it raises alone are bad, and the error's text is their reason.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

import pyarrow as pa

from rookery.decode import ddl
from rookery.decode.port import Array, Decoder, DecodeResult, DecoderSettings, Function
from rookery.decode.rows import decode_present, halve, one_by_one
from rookery.errors import ConfigError


class _Python:
    def __init__(self, function: Function, kind: pa.DataType) -> None:
        self._function = function
        self._type = kind

    @property
    def type(self) -> pa.DataType:
        return self._type

    def decode(self, column: Array) -> DecodeResult:
        return decode_present(column, self._type, self._decode)

    def _decode(self, column: Array) -> DecodeResult:
        return halve(column, self._type, self._block, one_by_one(self._type, self._row))

    def _block(self, column: Array) -> Array | None:
        values = self._call(column)
        return None if isinstance(values, str) else values

    def _row(self, data: bytes) -> Array | str:
        return self._call(pa.array([data], pa.binary()))

    def _call(self, column: Array) -> Array | str:
        try:
            values: Any = self._function(column)
        except Exception as error:  # noqa: BLE001 (whatever the user's function raises)
            return f"{type(error).__name__}: {error}"
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if not isinstance(values, pa.Array) or len(values) != len(column):
            raise ConfigError(
                f"decoder python: the function must return an Arrow array of {len(column)} rows, "
                f"as many as it was given"
            )
        try:
            cast_to: Array = values.cast(self._type)
            return cast_to
        except pa.ArrowException as error:
            return f"{values.type} cannot become {self._type}: {error}"


def open(settings: DecoderSettings) -> Decoder:  # noqa: A001 (the plug's interface)
    """Create a decoder from `function`; its type is `schema`, or that of its empty result."""
    function = settings.function
    if isinstance(function, str):
        function = _resolve(function)
    if not callable(function):
        raise ConfigError("decoder python: set function, such as package.module:name")
    schema = settings.schema
    if isinstance(schema, str):
        schema = ddl.parse(schema)
    if isinstance(schema, pa.Schema):
        return _Python(function, pa.struct(list(schema)))
    try:
        return _Python(function, function(pa.array([], pa.binary())).type)
    except Exception as error:
        raise ConfigError(
            f"decoder python: the function fails for no rows ({error}); set schema"
        ) from error


def _resolve(name: str) -> Function:
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ConfigError(f"decoder python: function {name!r}: write package.module:name")
    try:
        return cast("Function", getattr(import_module(module), attribute))
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"decoder python: function {name!r}: {error}") from None
