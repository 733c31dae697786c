"""Encodes default values of Avro schemas as Avro bytes, so that the kernel reads them as usual."""

from __future__ import annotations

import struct
from typing import Any

from rookery.decode.avroschema import MISSING, AvroType
from rookery.errors import ConfigError
from rookery.records.varint import zigzag


def encode(kind: AvroType, value: Any, field: str) -> bytes:
    """Encode a default from a schema: JSON, with bytes as text of U+0000 to U+00FF.

    Raises:
        ConfigError: the default does not have its field's type.
    """
    try:
        return _encode(kind, value)
    except (TypeError, ValueError, KeyError, AttributeError, struct.error, RecursionError):
        raise ConfigError(
            f"Avro schema: field {field!r}: default {str(value)[:80]!r} is not a {kind.kind}"
        ) from None


def _encode(kind: AvroType, value: Any) -> bytes:  # noqa: C901, PLR0911, PLR0912 (a table of types)
    match kind.kind:
        case "null" if value is None:
            return b""
        case "boolean" if isinstance(value, bool):
            return bytes([value])
        case "int" | "long" if isinstance(value, int) and not isinstance(value, bool):
            struct.pack("<i" if kind.kind == "int" else "<q", value)  # checks the range
            return zigzag(value)
        case "float" | "double" if not isinstance(value, bool):
            return struct.pack("<f" if kind.kind == "float" else "<d", value)
        case "string":
            return _add_size(value.encode())
        case "bytes":
            return _add_size(value.encode("latin-1"))
        case "fixed" if len(value) == kind.size:
            data: bytes = value.encode("latin-1")
            return data
        case "enum":
            return zigzag(kind.symbols.index(value))
        case "array" if isinstance(value, list) and kind.items:
            return _add_count([_encode(kind.items, item) for item in value])
        case "map" if isinstance(value, dict) and kind.items:
            items = kind.items
            return _add_count([_add_size(k.encode()) + _encode(items, v) for k, v in value.items()])
        case "record" if isinstance(value, dict):
            return b"".join(_encode(field.type, _of(value, field)) for field in kind.fields)
        case "union":
            return _encode_union(kind, value)
        case _:
            raise ValueError(kind.kind)


def _encode_union(kind: AvroType, value: Any) -> bytes:
    # A default belongs to the union's first branch; since Avro 1.12, to any: the first that fits.
    for at, branch in enumerate(kind.branches):
        try:
            return zigzag(at) + _encode(branch, value)
        except (TypeError, ValueError, KeyError, AttributeError, struct.error):
            continue
    raise ValueError(kind.kind)


def _of(value: dict[str, Any], field: Any) -> Any:
    item = value.get(field.name, field.default)
    if item is MISSING:
        raise KeyError(field.name)
    return item


def _add_size(data: bytes) -> bytes:
    return zigzag(len(data)) + data


def _add_count(items: list[bytes]) -> bytes:
    return zigzag(len(items)) + b"".join(items) + b"\0" if items else b"\0"
