"""Decodes UTF-8 text."""

from __future__ import annotations

import pyarrow as pa

from rookery.decode.port import Array, Decoder, DecodeResult, DecoderSettings
from rookery.decode.rows import decode_present, halve, one_by_one


class _Utf8:
    @property
    def type(self) -> pa.DataType:
        return pa.string()

    def decode(self, column: Array) -> DecodeResult:
        return decode_present(column, self.type, _decode)


def _decode(column: Array) -> DecodeResult:
    return halve(column, pa.string(), _block, one_by_one(pa.string(), _row))


def _block(column: Array) -> Array | None:
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return None


def _row(data: bytes) -> Array | str:
    try:
        return pa.array([data.decode()], pa.string())
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error.reason} at byte {error.start}"


def open(settings: DecoderSettings) -> Decoder:  # noqa: A001, ARG001 (the plug's interface)
    """Make the decoder."""
    return _Utf8()
