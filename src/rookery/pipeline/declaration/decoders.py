"""Converts the declaration of a topic to the settings of its decoder."""

from __future__ import annotations

from pathlib import Path

from rookery.decode.port import DecoderSettings
from rookery.decode.registry import RegistrySettings, SchemaRegistry
from rookery.errors import ConfigError
from rookery.pipeline.declaration.spec import Decode


def decoder_settings(decode: Decode) -> DecoderSettings:
    """Return the settings of a topic's decoder.

    Raises:
        ConfigError: the file with the schema cannot be read.
    """
    registry = None
    if decode.registry:
        registry = SchemaRegistry(
            RegistrySettings(
                decode.registry, decode.registry_user or None, decode.registry_password or None
            )
        )
    return DecoderSettings(
        schema=_schema(decode),
        registry=registry,
        subject=decode.subject or None,
        message=decode.message or None,
        function=decode.function or None,
    )


def _schema(decode: Decode) -> str | bytes | None:
    if not decode.schema_file:
        return decode.schema or None
    try:
        data = Path(decode.schema_file).read_bytes()
    except OSError as error:
        raise ConfigError(f"schema-file {decode.schema_file}: {error.strerror}") from error
    return data if decode.value == "protobuf" else data.decode()
