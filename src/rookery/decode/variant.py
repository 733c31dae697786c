"""Holds JSON of any shape as one column: checked text, and Spark's VARIANT built from it.

In memory, such a column is `VariantText`: the original JSON, known to be valid. Tables store it as
Spark's VARIANT where possible: two binaries, one with the keys and one with the values. The format
is Parquet's "Variant Binary Encoding", version 1; numbers get the same types as in Spark's
`parse_json`.
"""

from __future__ import annotations

import json
from decimal import Decimal
from struct import Struct
from typing import Any, Final, cast

import pyarrow as pa

from rookery.decode.jsonrows import FieldMismatch

MAX_DEPTH: Final = 500
"""Spark's own parser stops at 1000, Python's a little earlier."""
MAX_DIGITS: Final = 1000
_MAX_BYTES: Final = 16 << 20
"""Older versions of Spark accept no larger values."""
_DOUBLE: Final = Struct("<d")
_SURROGATE: Final = b"\\ud"


class VariantText(pa.ExtensionType):
    """JSON text; every value of such a column is valid JSON."""

    def __init__(self) -> None:
        super().__init__(pa.string(), "rookery.variant")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> VariantText:
        del storage_type, serialized
        return cls()

    def __reduce__(self) -> Any:
        return VariantText, ()


TEXT: Final = VariantText()
cast("Any", pa).register_extension_type(TEXT)  # the stubs only know the older kind
BINARY: Final = pa.struct(
    [
        pa.field("value", pa.binary(), nullable=False),
        # This mark lets Spark distinguish it from a struct with the same fields.
        pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}),
    ]
)
"""A column of Spark's type VARIANT, in its Arrow representation."""


def is_named(schema: str) -> bool:
    """Whether a schema is the keyword for JSON of any shape."""
    return schema.strip().lower() == "variant"


def is_variant(kind: pa.DataType) -> bool:
    """Whether a column holds JSON of any shape as text."""
    return isinstance(kind, VariantText)


def as_text(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return the text of a column of variants."""
    storage: pa.Array[Any] = column.storage  # type: ignore[attr-defined] # it is an extension
    return storage


def as_binary(column: pa.Array[Any]) -> pa.Array[Any]:
    """Return a column of variants in Spark's form."""
    texts: list[Any] = as_text(column).to_pylist()
    return pa.array([None if text is None else encode_variant(text) for text in texts], BINARY)


def check_json(data: bytes) -> str:
    """Return the text of a valid JSON value.

    Raises:
        FieldMismatch: it is not JSON, or Spark does not accept it; the text says why.
    """
    if len(data) > _MAX_BYTES:
        raise FieldMismatch(f"not decoded: {len(data)} bytes, and a variant takes {_MAX_BYTES}")
    try:
        text = data.decode()
        value = _DECODER.decode(text)
    except UnicodeDecodeError as error:
        raise FieldMismatch(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise FieldMismatch(f"not JSON: {error.msg} at letter {error.pos}") from None
    except RecursionError:
        raise FieldMismatch("not decoded: nested too deeply") from None
    _check_depth(value, text)
    if _SURROGATE in data.lower():
        _check_letters(value)
    return text


def encode_variant(text: str) -> dict[str, bytes]:
    """Return JSON text in Spark's format, by the names of its two parts."""
    builder = _Builder()
    value = builder.value(_DECODER.decode(text))
    return {"value": value, "metadata": builder.metadata()}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise FieldMismatch(f"field {twice!r}: it is given twice")
    return fields


def _number(text: str) -> Decimal | float:
    if len(text) > MAX_DIGITS:
        raise FieldMismatch("not decoded: a number is too long")
    if "e" in text or "E" in text:
        return float(text)
    digits = len(text.lstrip("-").replace(".", "").lstrip("0"))
    places = len(text) - text.index(".") - 1
    return Decimal(text) if max(digits, places) <= 38 else float(text)


def _integer(text: str) -> int | float:
    if len(text) > MAX_DIGITS:
        raise FieldMismatch("not decoded: a number is too long")
    return int(text) if len(text.lstrip("-")) <= 38 else float(text)


def _constant(text: str) -> Any:
    raise FieldMismatch(f"not JSON: {text} is not a number")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique,
    parse_float=_number,
    parse_int=_integer,
    parse_constant=_constant,
)


def _check_depth(value: Any, text: str) -> None:
    # Each level needs an opening bracket, so most texts cannot be deep at all.
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise FieldMismatch("not decoded: nested too deeply")
        level = [inner for node in level for inner in _inside(node)]


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _check_letters(value: Any) -> None:
    waiting = [value]
    while waiting:
        node = waiting.pop()
        waiting += _inside(node)
        for text in node if isinstance(node, dict) else [node]:
            try:
                text.encode() if isinstance(text, str) else None
            except UnicodeEncodeError:
                raise FieldMismatch("not decoded: half of a surrogate pair") from None


class _Builder:
    """One value, and the keys that occur in it."""

    def __init__(self) -> None:
        self._keys: dict[str, int] = {}

    def value(self, value: Any) -> bytes:
        if isinstance(value, dict):
            return self._object(value)
        if isinstance(value, list):
            return self._array(value)
        if isinstance(value, str):
            return _string(value.encode())
        return _scalar(value)

    def metadata(self) -> bytes:
        names = [key.encode() for key in self._keys]
        size = _width(max(sum(map(len, names)), len(names)))
        head = bytes([1 | (size - 1) << 6]) + len(names).to_bytes(size, "little")
        return head + _offsets(names, size) + b"".join(names)

    def _object(self, value: dict[str, Any]) -> bytes:
        ids: dict[str, int] = {}
        starts: dict[str, int] = {}
        parts: list[bytes] = []
        at = 0
        # Values are in text order; the list of fields is in name order.
        for key, inner in value.items():
            ids[key] = self._keys.setdefault(key, len(self._keys))
            starts[key] = at
            parts.append(self.value(inner))
            at += len(parts[-1])
        names = sorted(value, key=str.encode)
        id_size, size = _width(max(ids.values(), default=0)), _width(at)
        count = _count_bytes(len(names))
        head = (len(count) > 1) << 4 | (id_size - 1) << 2 | (size - 1)
        fields = b"".join(ids[key].to_bytes(id_size, "little") for key in names)
        offsets = b"".join(starts[key].to_bytes(size, "little") for key in names)
        end = at.to_bytes(size, "little")
        return b"".join((bytes([head << 2 | 2]), count, fields, offsets, end, *parts))

    def _array(self, value: list[Any]) -> bytes:
        parts = [self.value(inner) for inner in value]
        size, count = _width(sum(map(len, parts))), _count_bytes(len(parts))
        head = (len(count) > 1) << 2 | (size - 1)
        return b"".join((bytes([head << 2 | 3]), count, _offsets(parts, size), *parts))


def _count_bytes(count: int) -> bytes:
    return count.to_bytes(1 if count <= 255 else 4, "little")


def _offsets(parts: list[bytes], size: int) -> bytes:
    offsets, at = [bytes(size)], 0
    for part in parts:
        at += len(part)
        offsets.append(at.to_bytes(size, "little"))
    return b"".join(offsets)


def _width(number: int) -> int:
    return max(1, (number.bit_length() + 7) // 8)


def _string(data: bytes) -> bytes:
    if len(data) < 64:
        return bytes([len(data) << 2 | 1]) + data
    return bytes([16 << 2]) + len(data).to_bytes(4, "little") + data


def _scalar(value: int | float | Decimal | None) -> bytes:
    if value is None or isinstance(value, bool):
        return bytes([{None: 0, True: 1, False: 2}[value] << 2])
    if isinstance(value, float):
        return bytes([7 << 2]) + _DOUBLE.pack(value)
    if isinstance(value, Decimal):
        sign, digits, exponent = value.as_tuple()
        number = int("".join(map(str, digits))) * (-1 if sign else 1)
        return _decimal(number, -int(exponent))
    for kind, size in ((3, 1), (4, 2), (5, 4), (6, 8)):
        if -(1 << (8 * size - 1)) <= value < 1 << (8 * size - 1):
            return bytes([kind << 2]) + value.to_bytes(size, "little", signed=True)
    return _decimal(value, 0)


def _decimal(number: int, scale: int) -> bytes:
    precision = max(len(str(abs(number))), scale)
    kind, size = (8, 4) if precision <= 9 else (9, 8) if precision <= 18 else (10, 16)
    return bytes([kind << 2, scale]) + number.to_bytes(size, "little", signed=True)
