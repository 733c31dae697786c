"""Checks whether readers of one Protobuf message version can read values of another version.

Protobuf itself does not report it: a field whose type changed is skipped, or read as another value.
So the two versions are compared field by field before any value is read. A reader may have fewer or
more fields, and wider types; a change that would lose or alter a value does not fit.
"""

from __future__ import annotations

from typing import Any, Final

from rookery.errors import ConfigError

# Numbers of FieldDescriptor.Type, which the format defines permanently.
_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING = range(1, 10)
_GROUP, _MESSAGE, _BYTES, _UINT32, _ENUM, _SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(10, 19)
_NAMES: Final = (
    "", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string",
    "group", "message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64",
)  # fmt: skip
_HOLDS: Final[dict[int, frozenset[int]]] = {
    _INT64: frozenset({_INT32, _UINT32, _BOOL, _ENUM}),
    _UINT64: frozenset({_UINT32, _BOOL}),
    _INT32: frozenset({_BOOL, _ENUM}),
    _UINT32: frozenset({_BOOL}),
    _SINT64: frozenset({_SINT32}),
    _BYTES: frozenset({_STRING}),
}
"""The writer types that a reader's type also holds, with the same encoding."""


def check_readable(reader: Any, writer: Any) -> None:
    """Compare two descriptors of a message.

    Raises:
        ConfigError: a field has another type; the text names it.
    """
    _check(reader, writer, "", set())


def _check(reader: Any, writer: Any, path: str, seen: set[tuple[str, str]]) -> None:
    pair = (reader.full_name, writer.full_name)
    if pair in seen:
        return
    seen.add(pair)
    for number, field in reader.fields_by_number.items():
        other = writer.fields_by_number.get(number)
        if other is None:
            continue
        name = path + field.name
        if not _fits(field, other):
            raise ConfigError(f"field {name!r} is {_kind(other)} there and {_kind(field)} here")
        if field.message_type is not None and other.message_type is not None:
            _check(field.message_type, other.message_type, f"{name}.", seen)


def _fits(reader: Any, writer: Any) -> bool:
    # A single value is read as a list of one; of several, a single-value reader sees the last.
    if _is_repeated(writer) and not _is_repeated(reader):
        return False
    return reader.type == writer.type or writer.type in _HOLDS.get(reader.type, ())


def _is_repeated(field: Any) -> bool:
    if hasattr(field, "is_repeated"):
        return bool(field.is_repeated)
    return bool(field.label == field.LABEL_REPEATED)  # for packages before version 6


def _kind(field: Any) -> str:
    name = _NAMES[field.type] if 0 < field.type < len(_NAMES) else str(field.type)
    return f"repeated {name}" if _is_repeated(field) else name
