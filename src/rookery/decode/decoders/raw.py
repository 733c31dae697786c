"""Returns bytes unchanged."""

from __future__ import annotations

import pyarrow as pa

from rookery.decode.port import Array, Decoder, DecodeResult, DecoderSettings
from rookery.decode.rows import as_binary


class _Raw:
    @property
    def type(self) -> pa.DataType:
        return pa.binary()

    def decode(self, column: Array) -> DecodeResult:
        return DecodeResult(as_binary(column))


def open(settings: DecoderSettings) -> Decoder:  # noqa: A001, ARG001 (the plug's interface)
    """Make the decoder."""
    return _Raw()
