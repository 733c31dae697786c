"""Lines of records, as `consume` writes and `produce` reads them.

A JSON line looks like this; keys, values and header values that are not UTF-8 have `_base64` behind
their names:

    {"topic": "birds", "partition": 0, "offset": 7, "timestamp": 1767225600000,
     "key": "corvus", "value_base64": "/w==", "headers": [{"name": "seen", "value": "today"}]}
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import TypeAlias

from rookery.errors import ConfigError
from rookery.model.partition import TopicPartition
from rookery.records.record import Record

Write: TypeAlias = Callable[[TopicPartition, Record], bytes]
"""Turns a record into what is printed."""

Header: TypeAlias = tuple[str, bytes | None]


def writer(form: str, separator: bytes) -> Write:
    """Return how records are printed: `value`, `key-value`, `json` or `raw`."""

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
        **_named("key", record.key),
        **_named("value", record.value),
        "headers": [{"name": name, **_named("value", value)} for name, value in record.headers],
    }
    return json.dumps(line, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


def from_json(line: bytes) -> Record:
    """Read a record from a line of JSON; where it was before does not matter.

    Raises:
        ConfigError: the line is no such JSON; the text says why.
    """
    try:
        row = json.loads(line)
        headers = tuple((str(one["name"]), _read(one, "value")) for one in row.get("headers", ()))
        timestamp = int(row.get("timestamp", -1))
        return Record(_read(row, "key"), _read(row, "value"), headers, timestamp)
    except (ValueError, TypeError, KeyError, AttributeError, binascii.Error) as error:
        shown = line[:60].decode("utf-8", "replace")
        raise ConfigError(f"not a record in JSON: {shown!r}: {error}") from error


def from_text(line: bytes, separator: bytes | None, headers: tuple[Header, ...]) -> Record:
    """Read a record from a line of text; a line without the separator has no key."""
    if separator is None:
        return Record(None, line, headers)
    key, found, value = line.partition(separator)
    return Record(key, value, headers) if found else Record(None, line, headers)


def _named(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _read(row: dict[str, object], name: str) -> bytes | None:
    encoded = row.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(str(encoded), validate=True)
    value = row.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    # Numbers and objects are taken as the JSON that they are, as most who write by hand expect.
    return json.dumps(value, ensure_ascii=False).encode()
