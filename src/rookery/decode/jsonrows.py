"""Decodes JSON row by row: slower than whole blocks, but with the exact reason of an error.

Values are checked against the Arrow type in Python, so that a reason can name the field.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Final, cast

import pyarrow as pa

_Convert = Callable[[Any, str], Any]
_MAX_TEXT: Final = 40
_TOO_DEEP: Final = "not decoded: nested too deeply"
_TOO_LONG: Final = "not decoded: a number is too long"


class FieldMismatch(Exception):  # noqa: N818 (never leaves the decoder)
    """A value does not fit its field."""


class _Object(dict[str, Any]):
    """An object with duplicate fields."""

    twice: frozenset[str] = frozenset()


class _Number(Decimal):
    """A number with a point or an exponent, kept exactly: a double would round decimals."""


def loads(data: bytes) -> Any:
    """Parse one value.

    Raises:
        FieldMismatch: it is not JSON.
    """
    try:
        return _DECODER.decode(data.decode())
    except UnicodeDecodeError as error:
        raise FieldMismatch(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise FieldMismatch(f"not JSON: {error.msg} at letter {error.pos}") from None
    except RecursionError:
        raise FieldMismatch(_TOO_DEEP) from None
    except (ValueError, InvalidOperation):
        # Python rejects integers with thousands of digits.
        raise FieldMismatch(_TOO_LONG) from None


def is_unsure(data: bytes, reason: str) -> bool:
    """Return whether Arrow may accept a value that was rejected here: its limits differ."""
    # Arrow also accepts `Inf`, and ignores depth and long numbers in fields that are not requested.
    is_limited = reason in {_TOO_DEEP, _TOO_LONG} or b"Inf" in data or b"NaN" in data
    return is_limited and data.startswith(b"{") and data.endswith(b"}")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) == len(pairs):
        return fields
    marked, seen = _Object(fields), set[str]()
    marked.twice = frozenset(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]  # the set is filled on the way
    return marked


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_pairs, parse_float=_Number)


def converter(kind: pa.DataType) -> _Convert:
    """Create the function that checks a parsed value against a type."""
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list(kind)
    if pa.types.is_map(kind):
        return _map(kind)
    return _scalar(kind)


def supports(kind: pa.DataType) -> bool:
    """Return whether JSON can be decoded to this type."""
    try:
        converter(kind)
    except FieldMismatch:
        return False
    return True


def _wrong(path: str, expected: object, value: Any) -> FieldMismatch:
    names: dict[Any, str] = {
        dict: "an object",
        _Object: "an object",
        list: "an array",
        str: "a string",
    }
    text = json.dumps(value) if isinstance(value, bool) else str(value)
    actual = names.get(type(value), text)
    return FieldMismatch(f"field {path!r}: {expected} expected, {actual[:_MAX_TEXT]} found")


def _struct(kind: pa.DataType) -> _Convert:
    fields = [(field.name, converter(field.type)) for field in cast("pa.StructType", kind)]

    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong(path, "an object", value)
        twice = getattr(value, "twice", ())
        converted = {}
        for name, inner in fields:
            where = f"{path}.{name}" if path else name
            if name in twice:
                raise FieldMismatch(f"field {where!r}: it is given twice")
            item = value.get(name)
            converted[name] = None if item is None else inner(item, where)
        return converted

    return convert


def _list(kind: pa.DataType) -> _Convert:
    inner = converter(kind.value_type)  # type: ignore[attr-defined]  # a list type has it

    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, list):
            raise _wrong(path, "an array", value)
        return [None if item is None else inner(item, f"{path}[]") for item in value]

    return convert


def _map(kind: pa.DataType) -> _Convert:
    if not pa.types.is_string(kind.key_type):  # type: ignore[attr-defined]  # a map type has it
        raise FieldMismatch(f"{kind}: the keys of JSON objects are strings")
    inner = converter(kind.item_type)  # type: ignore[attr-defined]  # a map type has it

    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, dict):
            raise _wrong(path, "an object", value)
        if twice := getattr(value, "twice", ()):
            raise FieldMismatch(f"field {path!r}: key {min(twice)!r} is given twice")
        return [
            (_text(key, path), None if item is None else inner(item, f"{path}.{key}"))
            for key, item in value.items()
        ]

    return convert


def _text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise _wrong(path, "a string", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise FieldMismatch(f"field {path!r}: half of a surrogate pair") from None
    return value


def _scalar(kind: pa.DataType) -> _Convert:
    for test, convert in (
        (pa.types.is_boolean, _boolean),
        (pa.types.is_integer, _integer),
        (pa.types.is_floating, _convert_float),
        (pa.types.is_string, lambda _: _text),
        (pa.types.is_binary, lambda _: _binary),
        (pa.types.is_decimal, _decimal),
        (pa.types.is_date32, lambda _: _date),
        (pa.types.is_timestamp, _timestamp),
    ):
        if test(kind):
            return convert(kind)
    raise FieldMismatch(f"{kind}: JSON cannot be decoded to this type")


def _boolean(kind: pa.DataType) -> _Convert:
    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, bool):
            raise _wrong(path, kind, value)
        return value

    return convert


def _integer(kind: pa.DataType) -> _Convert:
    bits = kind.bit_width
    least = 0 if pa.types.is_unsigned_integer(kind) else -(1 << (bits - 1))
    most = least + (1 << bits) - 1

    def convert(value: Any, path: str) -> Any:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise _wrong(path, kind, value)
        return value

    return convert


def _convert_float(kind: pa.DataType) -> _Convert:
    def convert(value: Any, path: str) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise _wrong(path, kind, value)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isinf(number) and not isinstance(value, float):
            raise _wrong(path, kind, value)
        if pa.types.is_float64(kind):
            return number
        # Done by Arrow, as for whole blocks: rounding twice could yield another number.
        return pa.scalar(str(value)).cast(kind).as_py()

    return convert


def _decimal(kind: pa.DataType) -> _Convert:
    precision: int = kind.precision  # type: ignore[attr-defined]  # a decimal type has both
    scale: int = kind.scale  # type: ignore[attr-defined]

    def convert(value: Any, path: str) -> Any:
        if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
            raise _wrong(path, kind, value)
        try:
            number = Decimal(value)
        except InvalidOperation:
            raise _wrong(path, kind, value) from None
        if not _fits(number, precision, scale):
            raise _wrong(path, kind, value)
        return number

    return convert


def _fits(value: Decimal, precision: int, scale: int) -> bool:
    if not value.is_finite():
        return False
    # `normalize` is not used, because it rounds to the precision of Python's context.
    _, digits, exponent = value.as_tuple()
    places, count = -int(exponent), len(digits)
    while count > 1 and digits[count - 1] == 0:
        count, places = count - 1, places - 1
    return not any(digits) or (places <= scale and count - places <= precision - scale)


def _binary(value: Any, path: str) -> bytes:
    try:
        return base64.b64decode(_text(value, path), validate=True)
    except (binascii.Error, ValueError):
        raise FieldMismatch(f"field {path!r}: not base64") from None


def _date(value: Any, path: str) -> date:
    text = _text(value, path)
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    # Python also accepts other forms, such as 2026-W46-7, unlike whole blocks.
    if day is None or day.isoformat() != text:
        raise FieldMismatch(f"field {path!r}: {text[:_MAX_TEXT]!r} is not a date")
    return day


def _timestamp(kind: pa.DataType) -> _Convert:
    unit = kind.unit  # type: ignore[attr-defined]  # a timestamp type has it

    def convert(value: Any, path: str) -> Any:
        text = _text(value, path)
        # Done by Arrow, as for whole blocks, so that both paths accept the same times.
        for timestamp_type in (pa.timestamp(unit, "UTC"), pa.timestamp(unit)):
            try:
                return pa.scalar(text, pa.string()).cast(timestamp_type).cast(pa.int64()).as_py()
            except pa.ArrowInvalid:
                continue
        raise FieldMismatch(f"field {path!r}: {text[:_MAX_TEXT]!r} is not a timestamp")

    return convert
