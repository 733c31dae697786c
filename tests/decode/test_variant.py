"""JSON of any shape: accepted values, reasons of others, and the same bytes as from Spark."""

from __future__ import annotations

import json
import pickle
import random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import VariantVal

from rookery.decode import variant
from rookery.decode.rows import to_list
from tests.decode.samples import decoded, opened, reasons

TEXTS = [
    b"null", b"true", b"[]", b"{}", b'""', b"-0.001", b"1e3", b"127", b"-129", b"3000000000",
    b"12345678901234567890", b"1234567890123456789012345678901234567890123", b"100.0", b"0.00",
    b'{"b": 1, "a": {"z": [1, "x", null], "y": {}}}', b' {"a": 1} ', '"é"'.encode(),
    b'"' + b"x" * 100 + b'"', json.dumps(list(range(300))).encode(),
    json.dumps({f"key {number}": number for number in range(300)}).encode(),
]  # fmt: skip


def drawn(draw: random.Random, depth: int = 0) -> Any:
    """Draw a value of any shape."""
    kind = draw.randrange(8 if depth < 4 else 6)
    if kind < 6:
        return [
            None, draw.random() < 0.5, draw.randrange(-(10**25), 10**25), draw.randrange(300) - 150,
            round(draw.uniform(-1e6, 1e6), 4), "aé☃𝄞"[: draw.randrange(5)] * draw.randrange(30),
        ][kind]  # fmt: skip
    inner = [drawn(draw, depth + 1) for _ in range(draw.randrange(6))]
    return inner if kind == 6 else {draw.choice("abcé☃") * 3 + str(at): member for at, member in
                                    enumerate(inner)}  # fmt: skip


def opened_variant(**settings: Any) -> Any:
    return opened("json", schema="variant", **settings)


def test_any_json_is_stored_as_a_variant() -> None:
    result = decoded(opened_variant(), [*TEXTS, None])

    assert result.bad == ()
    assert result.values.type == variant.TEXT
    assert to_list(result.values) == [*(text.decode() for text in TEXTS), None]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "not JSON: Expecting value at letter 0"),
        (b"{", "not JSON"),
        (b"[1,]", "not JSON"),
        (b"1 2", "not JSON: Extra data"),
        (b"\xff", "not UTF-8"),
        (b"NaN", "not JSON: NaN is not a number"),
        (b'{"a": -Infinity}', "-Infinity is not a number"),
        (b'{"a": {"b": 1, "b": 2}}', "field 'b': it is given twice"),
        (b'["\\ud800"]', "half of a surrogate pair"),
        (b"1" * 2000, "a number is too long"),
        (b"[" * 600 + b"]" * 600, "nested too deeply"),
        (b"[" * 100_000, "n"),
    ],
)
def test_invalid_json_has_a_reason(value: bytes, why: str) -> None:
    result = decoded(opened_variant(), [b"1", value, b"2"])

    assert to_list(result.values) == ["1", None, "2"]
    assert list(reasons(result)) == [1]
    assert why in reasons(result)[1]


@pytest.mark.parametrize("text", TEXTS)
def test_bytes_equal_those_of_spark(text: bytes) -> None:
    check_same(text.decode())


def test_bytes_equal_those_of_spark_for_generated_values() -> None:
    draw = random.Random(11)
    for _ in range(500):
        check_same(json.dumps(drawn(draw), ensure_ascii=False))


def check_same(text: str) -> None:
    encoded, wanted = variant.encode_variant(text), VariantVal.parseJson(text)
    assert encoded == {"value": wanted.value, "metadata": wanted.metadata}


def test_variant_column_is_written_in_the_form_of_spark() -> None:
    column = decoded(opened_variant(), [b"[1]", None]).values
    schema = pickle.loads(pickle.dumps(pa.schema([pa.field("it", column.type)])))
    assert schema.field("it").type == variant.TEXT

    rows: list[Any] = to_list(variant.as_binary(column))
    assert rows == [{"value": b"\x03\x01\x00\x02\x0c\x01", "metadata": b"\x01\x00\x00"}, None]


def test_framed_values_are_decoded() -> None:
    made = opened_variant(registry="http://localhost:1")
    result = decoded(made, [b"\0\0\0\0\x07[1]", b"[1]"])

    assert to_list(result.values) == ["[1]", None]
    assert "no schema id" in reasons(result)[1]
