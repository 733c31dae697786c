"""Records that real Kafka wrote (tests/golden/records.json), as messages of ours."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rookery.wire.message import Message, Type
from rookery.wire.table import FieldShape, shape_of

_FILE = Path(__file__).parents[1] / "golden" / "records.json"


class Golden(NamedTuple):
    """One record: the message given to Kafka, and the bytes that it wrote."""

    message: type[Message]
    version: int
    body: bytes
    framed: bytes
    fields: dict[str, Any]

    def build(self) -> Message:
        """Return the message given to Kafka."""
        return build(self.message, self.fields)


def golden(messages: Iterable[type[Message]]) -> list[Any]:
    """Return every record of these classes as a test parameter; a class without one is an error."""
    classes = {message.__name__: message for message in messages}
    cases = [
        Golden(
            classes[entry["class"]],
            entry["version"],
            bytes.fromhex(entry["bytes"]),
            bytes.fromhex(entry.get("framed", "")),
            entry["fields"],
        )
        for entry in json.loads(_FILE.read_text())
        if entry["class"] in classes
    ]
    missing = [
        f"{message.__name__} v{version}"
        for message in classes.values()
        for version in message.VERSIONS or ()
        if not any(case.message is message and case.version == version for case in cases)
    ]
    assert not missing, f"no golden bytes of {missing}"
    return [
        pytest.param(case, id=f"{case.message.__name__}-{case.version}-{number}")
        for number, case in enumerate(cases)
    ]


def build(message: type[Message], fields: dict[str, Any]) -> Message:
    """Make a message from Kafka's names and JSON's values."""
    values = {}
    for name, value in fields.items():
        ours = our_name(message, name)
        values[ours] = our_value(shape_of(message, message.__fields__[ours]), value)
    return message(**values)


def our_name(message: type[Message], name: str) -> str:
    """Return our name of a field: Python's builtins get an underscore, as kio does it."""
    for candidate in (name, f"{name}_", name.replace("kraft_", "k_raft_")):
        if candidate in message.__fields__:
            return candidate
    raise LookupError(f"{message.__name__} has no field {name}")


def our_value(shape: FieldShape, value: Any) -> Any:
    """Turn JSON's value into ours."""
    if value is None:
        return None
    if shape.is_array:
        return [our_value(shape._replace(is_array=False), item) for item in value]
    if shape.message is not None:
        return build(shape.message, value)
    if shape.wire is Type.UUID:
        return uuid.UUID(value).bytes
    return bytes.fromhex(value) if shape.wire is Type.BYTES else value
