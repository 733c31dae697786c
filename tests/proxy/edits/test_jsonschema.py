"""JSON values against a JSON Schema: nothing is fetched, and no value takes long."""

from __future__ import annotations

import json
import socket
import sys

import pytest

from rookery.errors import ConfigError
from rookery.proxy.edits.jsonschema import JsonSchema

PERSON = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "name": {"type": "string", "pattern": "^[a-z]+$"},
        "tags": {"type": "array", "prefixItems": [{"const": "first"}]},
        "address": {"$ref": "#/$defs/address"},
    },
    "required": ["id"],
    "$defs": {"address": {"type": "object", "required": ["street"]}},
}
NESTED = {"$defs": {"list": {"type": "array", "items": {"$ref": "#/$defs/list"}}}} | {
    "$ref": "#/$defs/list"
}


def schema(value: object) -> JsonSchema:
    return JsonSchema(json.dumps(value))


@pytest.mark.parametrize(
    "value",
    [
        b'{"id": 1}',
        b'{"id": 1, "name": "a", "tags": ["first", 2], "more": null}',
        b'\n{"id":1e2, "address": {"street": "x"}}\n',
    ],
)
def test_values_with_the_schema_pass(value: bytes) -> None:
    assert schema(PERSON).reason(value) is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"[]", 'the value is not of type "object"'),
        (b"{}", '"id" is a required property'),
        (b'{"id": "secret"}', '/id: the value is not of type "integer"'),
        (b'{"id": 1, "tags": ["other"]}', "/tags/0: "),
        (b'{"id": 1, "address": {}}', '/address: "street" is a required property'),
        (b'{"id": NaN}', "no valid JSON: NaN"),
        (b'{"id": 1', "no valid JSON: "),
        (b"", "no valid JSON: "),
        (b"\xff\xfe\xfd", "no valid JSON: "),
        (b'{"id": 1, "name": "\\ud800"}', "no valid JSON: "),
        (b'{"id": %s}' % (b"9" * 5_000), "no valid JSON: "),
        (b"[" * 100_000, "the JSON is nested too deeply"),
    ],
)
def test_other_values_are_refused_with_a_reason(value: bytes, reason: str) -> None:
    found = schema(PERSON).reason(value)

    assert found is not None
    assert found.startswith(reason)
    assert len(found) <= 200
    assert "secret" not in found


def test_deep_values_of_a_recursive_schema_end() -> None:
    nested = schema(NESTED)

    assert nested.reason(b"[" * 200 + b"]" * 200) is None
    for depth in (900, 5_000, 50_000):
        assert nested.reason(b"[" * depth + b"]" * depth) in {None, "the JSON is nested too deeply"}


def test_pattern_takes_linear_time() -> None:
    evil = schema({"pattern": "^(a+)+$"})

    assert evil.reason(json.dumps("a" * 100_000 + "!").encode()) is not None


@pytest.mark.parametrize("pattern", ["(?=a)b", "(a)\\1", "(?<!a)b"])
def test_patterns_that_linear_time_does_not_allow_are_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="JSON Schema"):
        schema({"pattern": pattern})


def test_reference_to_another_document_is_refused_and_not_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        port = server.getsockname()[1]
        for place in (f"http://127.0.0.1:{port}/a.json", "file:///etc/hostname", "other.json"):
            with pytest.raises(ConfigError, match="JSON Schema"):
                schema({"$ref": place})
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize(
    "text", ["", "no JSON", "3", "[1]", '{"type": "nope"}', '{"minimum": NaN}']
)
def test_text_without_a_schema_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="JSON Schema"):
        JsonSchema(text)


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)

    with pytest.raises(ConfigError, match=r"pip install 'rookery\[json-schema\]'"):
        schema(PERSON)
