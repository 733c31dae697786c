"""Schemas that change in allowed ways and in others."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from rookery.decode import ddl
from rookery.decode.evolution import merge
from rookery.errors import Conflict


@pytest.mark.parametrize(
    ("old", "new", "wanted", "changes"),
    [
        ("a long", "a long", "a long", []),
        ("a long, b string", "a long", "a long, b string", []),
        ("a long", "b string, a long", "a long, b string", ["add b: string"]),
        ("a int", "a long", "a long", ["widen a: int32 to int64"]),
        ("a long", "a int", "a long", []),
        ("a float", "a double", "a double", ["widen a: float to double"]),
        ("a int", "a double", "a double", ["widen a: int32 to double"]),
        ("a decimal(5,2)", "a decimal(9,2)", "a decimal(9,2)",
         ["widen a: decimal128(5, 2) to decimal128(9, 2)"]),
        ("a struct<b:int>", "a struct<b:long,c:date>", "a struct<b:long,c:date>",
         ["widen a.b: int32 to int64", "add a.c: date32[day]"]),
        ("a array<struct<b:int>>", "a array<struct<c:int>>", "a array<struct<b:int,c:int>>",
         ["add a[].c: int32"]),
        ("a map<string,int>", "a map<string,long>", "a map<string,long>",
         ["widen a{}: int32 to int64"]),
    ],
)  # fmt: skip
def test_compatible_schemas_are_merged(old: str, new: str, wanted: str, changes: list[str]) -> None:
    merged = merge(ddl.parse(old), ddl.parse(new))
    assert merged.schema == ddl.parse(wanted)
    assert list(merged.changes) == changes
    assert merge(merged.schema, ddl.parse(new)).changes == ()


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("a long", "a string", "a"),
        ("a long", "a double", "a"),
        ("a string", "a binary", "a"),
        ("a date", "a timestamp", "a"),
        ("a timestamp", "a timestamp_ntz", "a"),
        ("a decimal(5,2)", "a decimal(9,3)", "a"),
        ("a struct<b:int>", "a int", "a"),
        ("a struct<b:int>", "a struct<b:string>", "a.b"),
        ("a array<int>", "a array<string>", "a[]"),
        ("a long", "A long", "A"),
    ],
)  # fmt: skip
def test_lossy_change_is_a_conflict_with_the_field_name(old: str, new: str, field: str) -> None:
    with pytest.raises(Conflict) as caught:
        merge(ddl.parse(old), ddl.parse(new))
    assert f"field {field!r}" in str(caught.value)


def test_null_types_and_nullability_are_merged() -> None:
    before: list[pa.Field[Any]] = [
        pa.field("a", pa.int32(), nullable=False),
        pa.field("n", pa.null()),
    ]
    after: list[pa.Field[Any]] = [pa.field("a", pa.int32()), pa.field("n", pa.string())]
    old, new = pa.schema(before), pa.schema(after)
    merged = merge(old, new)
    assert merged.schema == new
    assert list(merged.changes) == ["allow null in a", "widen n: null to string"]
