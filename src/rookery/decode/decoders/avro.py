"""Decodes Avro values, with writers' schemas from a registry or one schema for all."""

from __future__ import annotations

import pyarrow as pa

from rookery.decode import avroschema
from rookery.decode.avrocolumns import Translation, open_translation
from rookery.decode.avroplan import columns_of
from rookery.decode.avroschema import AvroType
from rookery.decode.frames import decode_framed
from rookery.decode.port import Array, Decoder, DecodeResult, DecoderSettings
from rookery.decode.registry import RegisteredSchema, SchemaRegistry, UnknownSchema
from rookery.decode.rows import decode_present
from rookery.errors import ConfigError


class _Avro:
    """Every value was written with the reader's schema."""

    def __init__(self, schema: AvroType) -> None:
        self._type = columns_of(schema)[0].type
        self._translation = open_translation(schema, schema)

    @property
    def type(self) -> pa.DataType:
        return self._type

    def decode(self, column: Array) -> DecodeResult:
        return decode_present(column, self._type, self._translation.run)


class _RegisteredDecoder:
    """Every value names the schema with which it was written."""

    def __init__(self, reader: AvroType, registry: SchemaRegistry) -> None:
        self._reader = reader
        self._type = columns_of(reader)[0].type
        self._registry = registry
        self._translations: dict[int, Translation] = {}

    @property
    def type(self) -> pa.DataType:
        return self._type

    def decode(self, column: Array) -> DecodeResult:
        return decode_present(column, self._type, self._decode)

    def _decode(self, column: Array) -> DecodeResult:
        return decode_framed(column, self._type, self._of_schema)

    def _of_schema(self, schema_id: int, payload: Array) -> DecodeResult:
        translation = self._translations.get(schema_id)
        if translation is None:
            schema = self._registry.schema(schema_id)
            try:
                writer = _parse(schema, self._registry)
                translation = open_translation(writer, self._reader)
            except ConfigError as error:
                # The registered schema that a row names is at fault, not the decoder's settings.
                raise UnknownSchema(f"schema {schema_id} cannot be used: {error}") from None
            self._translations[schema_id] = translation
        return translation.run(payload)


def _parse(schema: RegisteredSchema, registry: SchemaRegistry) -> AvroType:
    if schema.kind != "AVRO":
        raise ConfigError(f"schema {schema.schema_id} is {schema.kind}, not AVRO")
    named: dict[str, AvroType] = {}
    for used in registry.references(schema).values():
        avroschema.parse(used.text, named)
    return avroschema.parse(schema.text, named)


def open(settings: DecoderSettings) -> Decoder:  # noqa: A001 (the plug's interface)
    """Create a decoder for `schema` (JSON text), or for a subject of the registry."""
    registry, given = settings.registry, settings.schema
    if given is not None and not isinstance(given, str):
        raise ConfigError("decoder avro: schema must be an Avro schema as JSON text")
    if registry is None:
        if given is None:
            raise ConfigError("decoder avro: set schema, or registry and subject")
        return _Avro(avroschema.parse(given))
    if given is not None:
        return _RegisteredDecoder(avroschema.parse(given), registry)
    if settings.subject is None:
        raise ConfigError("decoder avro: set subject (or schema) to choose the readers' schema")
    try:
        registered = registry.latest(settings.subject, settings.version)
    except UnknownSchema as error:
        raise ConfigError(f"decoder avro: {error}; check subject and version") from None
    return _RegisteredDecoder(_parse(registered, registry), registry)
