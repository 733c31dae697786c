"""Decodes bytes to typed Arrow columns: JSON, Avro, Protobuf and others, with errors per row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rookery.exports import lazy_exports

if TYPE_CHECKING:
    from rookery.decode.open import open_decoder
    from rookery.decode.port import BadRow, Decoder, DecodeResult, DecoderSettings
    from rookery.decode.registry import (
        RegisteredSchema,
        RegistrySettings,
        SchemaRegistry,
        UnknownSchema,
    )

__all__ = [
    "BadRow",
    "DecodeResult",
    "Decoder",
    "DecoderSettings",
    "RegisteredSchema",
    "RegistrySettings",
    "SchemaRegistry",
    "UnknownSchema",
    "open_decoder",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(
        __name__,
        {
            "rookery.decode.open": ["open_decoder"],
            "rookery.decode.port": ["BadRow", "DecodeResult", "Decoder", "DecoderSettings"],
            "rookery.decode.registry": [
                "RegisteredSchema",
                "RegistrySettings",
                "SchemaRegistry",
                "UnknownSchema",
            ],
        },
    )
