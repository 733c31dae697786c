"""Lines of records, as `consume` writes and `produce` reads them.

A JSON line looks like this; keys, values and header values that are not UTF-8 have `_base64`
appended to their names:

    {"topic": "birds", "partition": 0, "offset": 7, "timestamp": 1767225600000,
     "key": "corvus", "value_base64": "/w==", "headers": [{"name": "seen", "value": "today"}]}
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from rookery.errors import ConfigError
from rookery.model.partition import TopicPartition
from rookery.records.recordcodec import Record

Write: TypeAlias = Callable[[TopicPartition, Record], bytes]
"""Converts a record to the bytes to print."""

Header: TypeAlias = tuple[str, bytes | None]

_VALUE: Final = ("value", "value_base64")
_FIELDS: Final = frozenset(
    {"topic", "partition", "offset", "timestamp", "key", "key_base64", *_VALUE, "headers"}
)
_HEADER_FIELDS: Final = frozenset({"name", *_VALUE})
_EXAMPLE: Final = '{"key": "corvus", "value": {"id": 1}, "headers": []}'


def writer(form: str, separator: bytes) -> Write:
    """Return the function for a form of output: `value`, `key-value`, `json` or `raw`."""

    def key_value(_: TopicPartition, record: Record) -> bytes:
        return b"%b%b%b\n" % (record.key or b"", separator, record.value or b"")

    forms: dict[str, Write] = {
        "value": lambda _, record: (record.value or b"") + b"\n",
        "key-value": key_value,
        "json": to_json,
        "raw": lambda _, record: record.value or b"",
    }
    return forms[form]


def to_json(place: TopicPartition, record: Record) -> bytes:
    """Return a record as one line of JSON."""
    line: dict[str, object] = {
        "topic": place.topic,
        "partition": place.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_name_value("key", record.key),
        **_name_value("value", record.value),
        "headers": [
            {"name": name, **_name_value("value", value)} for name, value in record.headers
        ],
    }
    return json.dumps(line, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


def from_json(line: bytes) -> Record:
    """Read a record from a line of JSON; its former partition and offset are ignored.

    Raises:
        ConfigError: the line is no such JSON, or has a field that would be lost.
    """
    try:
        row = _object(json.loads(line, object_pairs_hook=_unique), "the line", _FIELDS)
        value = _read_required(row, "value")
        return Record(_read(row, "key"), value, tuple(_headers(row)), _timestamp(row))
    except (ValueError, TypeError) as error:
        shown = line[:60].decode("utf-8", "replace")
        raise ConfigError(
            f"not a record in JSON: {shown!r}: {error}; expected is a line such as {_EXAMPLE}"
        ) from error


def from_text(line: bytes, separator: bytes | None, headers: tuple[Header, ...]) -> Record:
    """Read a record from a line of text; a line without the separator has no key."""
    if separator is None:
        return Record(None, line, headers)
    key, has_key, value = line.partition(separator)
    return Record(key, value, headers) if has_key else Record(None, line, headers)


def _name_value(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    unique = dict(pairs)
    if len(unique) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice} occurs twice")
    return unique


def _object(row: object, what: str, fields: frozenset[str]) -> dict[str, object]:
    """Check that a value is an object with no fields but these."""
    if not isinstance(row, dict):
        raise TypeError(f"{what} must be an object")
    unknown = sorted(row.keys() - fields)
    if unknown:
        raise ValueError(f"unknown field{'s' * (len(unknown) > 1)} {', '.join(unknown)}")
    return row


def _headers(row: dict[str, object]) -> Iterator[Header]:
    headers = row.get("headers", [])
    if not isinstance(headers, list):
        raise TypeError("headers must be a list")
    for item in headers:
        header = _object(item, "a header", _HEADER_FIELDS)
        name = header.get("name")
        if not isinstance(name, str):
            raise TypeError("the name of a header must be text")
        yield name, _read_required(header, "value")


def _timestamp(row: dict[str, object]) -> int:
    timestamp = row.get("timestamp", -1)
    if not isinstance(timestamp, int) or isinstance(timestamp, bool):
        raise TypeError("timestamp must be a whole number of milliseconds")
    return timestamp


def _read_required(row: dict[str, object], name: str) -> bytes | None:
    if name not in row and f"{name}_base64" not in row:
        raise ValueError(f"{name} or {name}_base64 is missing (null is a tombstone)")
    return _read(row, name)


def _read(row: dict[str, object], name: str) -> bytes | None:
    encoded = row.get(f"{name}_base64")
    if encoded is not None:
        if row.get(name) is not None:
            raise ValueError(f"both {name} and {name}_base64 are set")
        if not isinstance(encoded, str):
            raise ValueError(f"{name}_base64 must be text")
        return base64.b64decode(encoded, validate=True)
    value = row.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    # Numbers and objects are taken as the JSON that they are, as most who write by hand expect.
    return json.dumps(value, ensure_ascii=False).encode()
