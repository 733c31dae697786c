"""JSON to structs: values that fit, reasons of those that do not, and rows that are unaffected."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.decode import ddl
from rookery.errors import ConfigError
from tests.decode.samples import decoded, mutated, opened, reasons

DDL = "id long, name string, price double, small int, ok boolean, tags array<string>, at timestamp"


def decoded_row(schema: str, data: bytes) -> Any:
    result = decoded(opened("json", schema=schema), [data])
    return result.bad[0].reason if result.bad else result.values[0].as_py()


@pytest.mark.parametrize(
    ("schema", "text", "wanted"),
    [
        ("a long", '{"a": 9223372036854775807}', 9223372036854775807),
        ("a long", '{"b": 1}', None),
        ("a long", '{"a": null}', None),
        ("a byte", '{"a": -128}', -128),
        ("a decimal(38,2)", '{"a": "123456789012345678901234567890123456.78"}',
         Decimal("123456789012345678901234567890123456.78")),
        ("a decimal(10,2)", '{"a": 1.50}', Decimal("1.50")),
        ("a decimal(10,2)", '{"a": 1e2}', Decimal(100)),
        ("a decimal(10,2)", '{"a": 1.5000}', Decimal("1.50")),
        ("a date", '{"a": "2026-11-15"}', date(2026, 11, 15)),
        ("a timestamp", '{"a": "2026-11-15T10:00:00+02:00"}',
         datetime(2026, 11, 15, 8, tzinfo=UTC)),
        ("a timestamp", '{"a": "2026-11-15 10:00:00.25"}',
         datetime(2026, 11, 15, 10, 0, 0, 250_000, tzinfo=UTC)),
        ("a timestamp_ntz", '{"a": "2026-11-15T10:00:00"}', datetime(2026, 11, 15, 10)),  # noqa: DTZ001
        ("a struct<b:array<struct<c:int>>>", '{"a": {"b": [{"c": 1}, null, {}]}}',
         {"b": [{"c": 1}, None, {"c": None}]}),
        ("a map<string,int>", '{"a": {"x": 1, "y": null}}', [("x", 1), ("y", None)]),
        ("a binary", '{"a": "aGk="}', b"hi"),
        ("a string", '{"a": "\\u00e9\\ud83d\\ude00"}', "é😀"),
        ("`a` float", '{"a": 0.1}', pa.scalar(0.1, pa.float32()).as_py()),
    ],
)  # fmt: skip
def test_valid_values_are_decoded(schema: str, text: str, wanted: Any) -> None:
    assert decoded_row(schema, text.encode()) == {"a": wanted}
    # Space around it sends the row another way, which must lead to the same.
    assert decoded_row(schema, f" {text}\n".encode()) == {"a": wanted}


@pytest.mark.parametrize(
    ("schema", "data", "reason"),
    [
        ("a long", b'{"a": "1"}', "field 'a': int64 expected, a string found"),
        ("a long", b'{"a": 1.0}', "field 'a': int64 expected, 1.0 found"),
        ("a long", b'{"a": true}', "field 'a': int64 expected, true found"),
        ("a long", b'{"a": 9223372036854775808}', "int64 expected, 9223372036854775808 found"),
        ("a byte", b'{"a": 128}', "field 'a': int8 expected, 128 found"),
        ("a boolean", b'{"a": 0}', "field 'a': bool expected"),
        ("a string", b'{"a": 1}', "field 'a': a string expected"),
        ("a double", b'{"a": 1e400}', "field 'a': double expected"),
        ("a struct<b:struct<c:int>>", b'{"a": {"b": {"c": "x"}}}', "field 'a.b.c': int32"),
        ("a array<int>", b'{"a": {}}', "field 'a': an array expected, an object found"),
        ("a array<int>", b'{"a": [1, "x"]}', "field 'a[]': int32"),
        ("a map<string,int>", b'{"a": {"k": "x"}}', "field 'a.k': int32"),
        ("a map<string,int>", b'{"a": {"k": 1, "k": 2}}', "key 'k' is given twice"),
        ("a decimal(4,2)", b'{"a": 1.234}', "decimal128(4, 2) expected"),
        ("a decimal(38,4)", b' {"a": 0.1' + b"0" * 38 + b"1}", "decimal128(38, 4) expected"),
        ("a decimal(38,4)", b' {"a": 1e999999999}', "decimal128(38, 4) expected"),
        ("a decimal(4,2)", b'{"a": 123}', "decimal128(4, 2) expected"),
        ("a date", b'{"a": "2026-13-01"}', "is not a date"),
        ("a date", b'{"a": 3}', "field 'a': a string expected"),
        ("a timestamp", b'{"a": "yesterday"}', "is not a timestamp"),
        ("a binary", b'{"a": "***"}', "not base64"),
        ("a long", b'{"a": 1, "a": 2}', "field 'a': it is given twice"),
        ("a long", b"", "not JSON"),
        ("a long", b"[]", "not an object"),
        ("a long", b"null", "not an object"),
        ("a long", b'{"a": 1}{"a": 2}', "not JSON: Extra data"),
        ("a long", b'{"a": 1', "not JSON"),
        ("a string", b'{"a": "\xff"}', "not UTF-8"),
        ("a string", b'{"a": "\\ud800"}', "half of a surrogate pair"),
        ("a string", b'{"a": "\n"}', "not JSON: Invalid control character"),
        ("a long", b"\xef\xbb\xbf{}", "not JSON"),
        ("a long", b'{"a": ' + b"[" * 100_000, "nested too deeply"),
        ("a long", b'{"a": ' + b"9" * 100_000 + b"}", "too long"),
    ],
)  # fmt: skip
def test_mismatching_value_is_bad_with_its_location(schema: str, data: bytes, reason: str) -> None:
    assert reason in decoded_row(schema, data)


ROW = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=3),
        "name": st.none() | st.text(max_size=8) | st.integers(0, 3),
        "price": st.none()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.integers(-(2**70), 2**70),
        "small": st.none() | st.integers(-(2**31), 2**31 - 1) | st.integers(2**31, 2**80),
        "ok": st.none() | st.booleans() | st.just("no"),
        "tags": st.none() | st.lists(st.none() | st.text(max_size=4), max_size=3) | st.just("t"),
        "at": st.none() | st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)),  # noqa: DTZ001
        "other": st.recursive(st.none() | st.text(), st.lists, max_leaves=5),
    },
)


def fits(row: dict[str, Any]) -> bool:
    """Return whether a row fits `DDL`, judged by Python's own types."""
    kinds: dict[str, Any] = {"id": int, "name": str, "price": int | float, "small": int,
                             "ok": bool, "tags": list}  # fmt: skip
    if any(
        row.get(key) is not None and not isinstance(row[key], kind) for key, kind in kinds.items()
    ):
        return False
    return -(2**31) <= (row.get("small") or 0) < 2**31


@given(st.lists(ROW, max_size=40))
@settings(deadline=None)
def test_values_equal_those_of_the_python_parser(rows: list[dict[str, Any]]) -> None:
    values = [json.dumps(row, default=datetime.isoformat).encode() for row in rows]
    result = decoded(opened("json", schema=DDL), values)
    assert [at not in reasons(result) for at in range(len(rows))] == [fits(row) for row in rows]
    for at, row in enumerate(rows):
        if fits(row):
            wanted = {field.name: row.get(field.name) for field in ddl.parse(DDL)}
            if wanted["at"] is not None:
                wanted["at"] = wanted["at"].replace(tzinfo=UTC)
            if wanted["price"] is not None:
                wanted["price"] = float(wanted["price"])  # a double holds no more digits
            assert result.values[at].as_py() == wanted


SHARDS = st.lists(
    st.sampled_from(
        [b"{", b"}", b'"', b"[", b"]", b",", b":", b"\n", b" ", b"1", b'"a":', b'{"a":1}',
         b'{"a":"',
         b'"}', b"{}", b'{"a":1', b"}\n{", b"NaN", b"-Inf", b"null", b"\\", b"\xff", b"e9"]
    ),
    max_size=8,
).map(b"".join)  # fmt: skip


@given(st.lists(SHARDS, max_size=12))
@settings(deadline=None)
def test_neighbouring_rows_do_not_affect_a_value(values: list[bytes]) -> None:
    decoder = opened("json", schema="a double, b string")
    result = decoded(decoder, values)
    for at, value in enumerate(values):
        alone = decoded(decoder, [value])
        assert str(alone.values[0].as_py()) == str(result.values[at].as_py())
        assert (at in reasons(result)) == bool(alone.bad)


def test_rows_that_are_valid_only_when_joined_do_not_shift_others() -> None:
    values = [b'{"a":"}', b'{"}', b'{"a":1}{"a":2}', b'{"a":', b"3}", b'{"a":4}']
    result = decoded(opened("json", schema="a long"), values)
    assert sorted(reasons(result)) == [0, 1, 2, 3, 4]
    assert result.values[5].as_py() == {"a": 4}


def test_invalid_row_does_not_affect_others() -> None:
    good = [json.dumps({"id": at, "tags": [str(at)]}).encode() for at in range(5000)]
    values: list[bytes | None] = list(good)
    bad = {17: b'{"id": "x"}', 18: b"{]}", 2500: b'{"id": 1e5}', 4999: b"\xff"}
    for at, data in bad.items():
        values[at] = data
    values[100] = None
    result = decoded(opened("json", schema=DDL), values)
    assert sorted(reasons(result)) == sorted(bad)
    ids = [None if at in bad or at == 100 else at for at in range(5000)]
    assert [row and row["id"] for row in result.values.to_pylist()] == ids


def test_many_invalid_rows_are_found_in_linear_time() -> None:
    values = [b'{"a": 1}' if at % 2 else b'{"a": {]}' for at in range(4000)]
    result = decoded(opened("json", schema="a long"), values)
    assert sorted(reasons(result)) == list(range(0, 4000, 2))


def test_damaged_rows_never_raise() -> None:
    chance = random.Random(11)
    whole = json.dumps({"id": 1, "name": "ü" * 9, "price": 1.5, "tags": ["x"], "ok": True}).encode()
    decoded(opened("json", schema=DDL), [mutated(whole, chance) for _ in range(2000)])


@pytest.mark.parametrize("schema", [None, "", "a", "a nothing", pa.schema([]), b"x"])
def test_a_schema_is_needed(schema: Any) -> None:
    with pytest.raises(ConfigError, match="schema"):
        opened("json", schema=schema)


def test_types_that_json_cannot_hold_are_refused() -> None:
    with pytest.raises(ConfigError, match="field 'a' cannot be"):
        opened("json", schema=pa.schema([("a", pa.map_(pa.int32(), pa.int32()))]))
