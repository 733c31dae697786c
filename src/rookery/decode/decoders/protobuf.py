"""Decodes Protobuf messages to a struct, with `ptars` (Rust).

Readers see one message type: from a FileDescriptorSet, or from a subject's version. Additional
fields of writers are ignored, as usual in Protobuf. Framed values identify their message by its
index in the writer's file: after the frame come a count and the indexes, or one zero for the first
message.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rookery.decode.descriptors import SERIALIZED, from_registry, from_set, index_path, message_in
from rookery.decode.frames import decode_framed
from rookery.decode.port import Array, BadRow, Decoder, DecodeResult, DecoderSettings, bad_row
from rookery.decode.protofit import check_readable
from rookery.decode.registry import SchemaRegistry, UnknownSchema
from rookery.decode.rows import (
    Part,
    compute,
    decode_present,
    halve,
    map_rows,
    one_by_one,
    spread,
    without_head,
)
from rookery.errors import ConfigError
from rookery.records.varint import zigzag


class _Protobuf:
    def __init__(self, descriptor: Any, registry: SchemaRegistry | None) -> None:
        self._descriptor = descriptor
        self._registry = registry
        self._handler = _handler(descriptor)
        self._type = _nullable(pa.struct(list(self._handler.schema())))
        self._prefixes: dict[int, tuple[bytes, ...]] = {}

    @property
    def type(self) -> pa.DataType:
        return self._type

    def decode(self, column: Array) -> DecodeResult:
        whole = self._decode if self._registry is None else self._decode_framed
        return decode_present(column, self._type, whole)

    def _decode(self, column: Array) -> DecodeResult:
        return halve(column, self._type, self._block, one_by_one(self._type, self._row))

    def _block(self, column: Array) -> Array | None:
        values = self._convert(column)
        return None if isinstance(values, str) else values

    def _row(self, data: bytes) -> Array | str:
        return self._convert(pa.array([data], pa.binary()))

    def _convert(self, column: Array) -> Array | str:
        try:
            batch = self._handler.array_to_record_batch(column)
            return pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema)).cast(
                self._type
            )
        except (ValueError, pa.ArrowException) as error:
            return f"not a {self._descriptor.full_name}: {error}"
        except BaseException as error:
            # Some damaged values cause a Rust panic, which is not an `Exception` in Python.
            if type(error).__name__ != "PanicException":
                raise
            return f"not a {self._descriptor.full_name}: it cannot be parsed"

    def _decode_framed(self, column: Array) -> DecodeResult:
        return decode_framed(column, self._type, self._of_schema)

    def _of_schema(self, schema_id: int, payload: Array) -> DecodeResult:
        """Decode the rows with the reader's message; other messages of the file are bad rows."""
        is_left = pa.repeat(True, len(payload))  # noqa: FBT003 (a value, not a flag)
        parts: list[Part] = []
        bad: list[BadRow] = []
        for prefix in self._prefixes_of(schema_id):
            is_ours = compute.and_(is_left, compute.starts_with(payload, prefix))
            is_left = compute.and_not(is_left, is_ours)
            rows = compute.indices_nonzero(is_ours)
            result = self._decode(without_head(payload.take(rows), len(prefix)))
            parts.append((rows, result.values))
            bad += map_rows(result.bad, rows)
        reason = f"another message than {self._descriptor.full_name}, or no message indexes"
        bad += [bad_row(row, reason) for row in compute.indices_nonzero(is_left).to_pylist()]
        return DecodeResult(spread(parts, len(payload), self._type), tuple(bad))

    def _prefixes_of(self, schema_id: int) -> tuple[bytes, ...]:
        """Return the possible prefixes of a writer's values that hold the reader's message.

        Raises:
            UnknownSchema: the file does not have the message, or a field has changed its type.
        """
        prefixes = self._prefixes.get(schema_id)
        if prefixes is None:
            assert self._registry is not None  # noqa: S101 (framed values only)
            try:
                files = from_registry(self._registry.schema(schema_id, SERIALIZED), self._registry)
                writer = message_in(files, self._descriptor.full_name)
                check_readable(self._descriptor, writer)
                path = index_path(writer)
            except ConfigError as error:
                # The registered schema that a row names is at fault, not the decoder's settings.
                raise UnknownSchema(f"schema {schema_id} cannot be used: {error}") from None
            prefixes = (zigzag(len(path)) + b"".join(map(zigzag, path)),)
            if path == [0]:
                prefixes += (b"\0",)
            self._prefixes[schema_id] = prefixes
        return prefixes


def _handler(descriptor: Any) -> Any:
    try:
        import ptars  # noqa: PLC0415 (only if Protobuf is used)
    except ImportError as error:
        raise ConfigError(f"decoder protobuf: {error}; install rookery[decode]") from None
    config = ptars.PtarsConfig(
        timestamp_unit="us", time_unit="us", duration_unit="us", enum_repr="string"
    )
    return ptars.HandlerPool([descriptor.file], config=config).get_for_message(descriptor)


def _nullable(kind: pa.DataType) -> pa.DataType:
    # A bad row is null, including everything in it.
    if pa.types.is_struct(kind):
        return pa.struct([_nullable_field(field) for field in kind])
    if pa.types.is_map(kind):
        arrow: Any = pa  # the stubs know maps of types only, not of fields
        map_type: pa.DataType = arrow.map_(kind.key_type, _nullable_field(kind.item_field))
        return map_type
    if pa.types.is_list(kind):
        return pa.list_(_nullable_field(kind.value_field))
    return kind


def _nullable_field(field: pa.Field[Any]) -> pa.Field[Any]:
    return pa.field(field.name, _nullable(field.type), nullable=True)


def open(settings: DecoderSettings) -> Decoder:  # noqa: A001 (the plug's interface)
    """Create a decoder for a message of `schema` (a FileDescriptorSet) or of a subject."""
    registry = settings.registry
    if isinstance(settings.schema, bytes):
        files = from_set(settings.schema)
    elif registry is not None and settings.schema is None and settings.subject is not None:
        try:
            registered = registry.latest(settings.subject, settings.version, SERIALIZED)
            files = from_registry(registered, registry)
        except UnknownSchema as error:
            raise ConfigError(f"decoder protobuf: {error}; check subject and version") from None
    else:
        raise ConfigError(
            "decoder protobuf: set schema to a FileDescriptorSet as bytes, or registry and subject"
        )
    return _Protobuf(message_in(files, settings.message), registry)
