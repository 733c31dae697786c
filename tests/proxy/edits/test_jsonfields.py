"""Named fields of JSON text, replaced in place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.proxy.edits.jsonfields import parse_paths, replace_fields

NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=10,
)


def hide(text: str) -> str:
    return json.dumps(f"<{text}>")


def show(text: str) -> str:
    value = json.loads(text)
    return str(value)[1:-1] if isinstance(value, str) and value.startswith("<") else text


@given(
    value=VALUES,
    paths=st.lists(st.lists(NAMES, min_size=1, max_size=3).map(tuple), min_size=1, max_size=3),
    indent=st.none() | st.integers(0, 3),
)
def test_replaced_fields_can_be_restored_byte_for_byte(
    value: Any, paths: list[tuple[str, ...]], indent: int | None
) -> None:
    text = json.dumps(value, indent=indent)

    hidden = replace_fields(text, paths, hide)

    json.loads(hidden)
    assert replace_fields(hidden, paths, show) == text


@pytest.mark.parametrize(
    ("text", "paths", "expected"),
    [
        ('{"a": 1.10, "b":2}', ["a"], '{"a": "<1.10>", "b":2}'),
        ('{"a": {"b": 1, "c": 2}}', ["a.b"], '{"a": {"b": "<1>", "c": 2}}'),
        ('[{"a": 1}, {"a": 2}]', ["a"], '[{"a": "<1>"}, {"a": "<2>"}]'),
        ('{"\\u0061": 1}', ["a"], '{"\\u0061": "<1>"}'),
        ('{"a": 1, "a": 2}', ["a"], '{"a": "<1>", "a": "<2>"}'),
        ('{"a": "scalar"}', ["a.b"], '{"a": "<\\"scalar\\">"}'),
        ('{"a": [1, {"b": 2}]}', ["a.b"], '{"a": ["<1>", {"b": "<2>"}]}'),
        ('{"b": 1}', ["a"], '{"b": 1}'),
        (" {} ", ["a"], " {} "),
    ],
)
def test_fields_are_found(text: str, paths: list[str], expected: str) -> None:
    assert replace_fields(text, parse_paths(paths), hide) == expected


@pytest.mark.parametrize(
    "text",
    ["", "{", '{"a"}', '{"a": }', '{"a": 1} x', "[1", "{a: 1}", '{"a": 1,}', "[" * 100_000, "x"],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (JSON's own errors are ValueErrors)
        replace_fields(text, parse_paths(["a"]), hide)
