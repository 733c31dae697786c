"""Schemas as text."""

from __future__ import annotations

import contextlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.decode.ddl import parse
from rookery.errors import ConfigError


def test_all_types_are_parsed() -> None:
    text = (
        "a long, b: STRING, `c d` decimal(10,2), e array<map<string,struct<f:int,g:date>>>, "
        "h timestamp, i timestamp_ntz, j decimal, k binary"
    )
    inner = pa.struct([("f", pa.int32()), ("g", pa.date32())])
    fields: list[pa.Field[Any]] = [
        pa.field("a", pa.int64()),
        pa.field("b", pa.string()),
        pa.field("c d", pa.decimal128(10, 2)),
        pa.field("e", pa.list_(pa.map_(pa.string(), inner))),
        pa.field("h", pa.timestamp("us", "UTC")),
        pa.field("i", pa.timestamp("us")),
        pa.field("j", pa.decimal128(10, 0)),
        pa.field("k", pa.binary()),
    ]
    assert parse(text) == pa.schema(fields)


@pytest.mark.parametrize(
    "text",
    ["", "a", "a long,", "a long b int", "a array<int", "a decimal(39,0)", "a decimal(2,3)",
     "a long, a int", "a map<int>", "1 long", "a array<" * 40, "a long)", "a struct<>"],
)  # fmt: skip
def test_invalid_schema_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="schema"):
        parse(text)


@given(st.text(alphabet="a1 ,:<>()`struclongmapde", max_size=60))
@settings(deadline=None)
def test_any_text_is_a_schema_or_refused(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert len(parse(text)) > 0
