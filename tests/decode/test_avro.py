"""Avro by the compiled kernel and by its fallback fastavro; damaged bytes."""

from __future__ import annotations

import io
import json
import random
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.decode import _avro, avrocolumns, avrofallback, avroschema
from rookery.decode.avrocolumns import KernelTranslation, open_translation
from rookery.decode.avrofallback import FastavroTranslation
from rookery.decode.avroplan import plan
from rookery.decode.port import DecodeResult
from rookery.decode.rows import to_list
from rookery.errors import ConfigError
from rookery.records.varint import zigzag
from tests.decode.samples import column, decoded, mutated, opened, reasons


def record(*fields: tuple[Any, ...], name: str = "R") -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [
            {
                "name": field[0],
                "type": field[1],
                **({"default": field[2]} if len(field) > 2 else {}),
            }
            for field in fields
        ],
    }


def written(schema: Any, *values: Any) -> list[bytes]:
    encoded = []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
        encoded.append(out.getvalue())
    return encoded


def by_kernel(writer: Any, reader: Any, values: list[bytes]) -> DecodeResult:
    types = avroschema.parse(json.dumps(writer)), avroschema.parse(json.dumps(reader))
    result = KernelTranslation(plan(*types), _avro.Program).run(column(*values))
    result.values.validate(full=True)
    return result


def by_fastavro(writer: Any, reader: Any, values: list[bytes]) -> DecodeResult:
    types = avroschema.parse(json.dumps(writer)), avroschema.parse(json.dumps(reader))
    return FastavroTranslation(plan(*types)).run(column(*values))


def both(writer: Any, reader: Any, values: list[bytes]) -> DecodeResult:
    """Decode by both; what the kernel can read, fastavro reads as well and as the same."""
    compiled, other = by_kernel(writer, reader, values), by_fastavro(writer, reader, values)
    damaged = reasons(compiled)
    assert reasons(other).keys() <= damaged.keys()
    whole = pa.array([row for row in range(len(values)) if row not in damaged], pa.int64())
    left, right = compiled.values.take(whole), other.values.take(whole)
    assert left.type == right.type
    assert left.equals(right) or str(left) == str(right)
    return compiled


WIDE = record(
    ("b", "boolean"),
    ("i", "int"),
    ("l", "long"),
    ("f", "float"),
    ("d", "double"),
    ("s", "string"),
    ("y", "bytes"),
    ("n", ["null", "string"], None),
    ("e", {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}),
    ("x", {"type": "fixed", "name": "F", "size": 3}),
    ("a", {"type": "array", "items": ["null", "long"]}),
    ("m", {"type": "map", "values": {"type": "array", "items": "string"}}),
    ("r", record(("deep", ["null", record(("v", "int"), name="Inner")]), name="Middle")),
    ("day", {"type": "int", "logicalType": "date"}),
    ("ms", {"type": "long", "logicalType": "timestamp-millis"}),
    ("us", {"type": "long", "logicalType": "timestamp-micros"}),
    ("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
    ("dec", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}),
)
VALUES = st.fixed_dictionaries(
    {
        "b": st.booleans(),
        "i": st.integers(-(2**31), 2**31 - 1),
        "l": st.integers(-(2**63), 2**63 - 1),
        "f": st.floats(width=32, allow_nan=False),
        "d": st.floats(allow_nan=False),
        "s": st.text(max_size=20),
        "y": st.binary(max_size=9),
        "n": st.none() | st.text(max_size=3),
        "e": st.sampled_from("ABC"),
        "x": st.binary(min_size=3, max_size=3),
        "a": st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=4),
        "m": st.dictionaries(st.text(max_size=3), st.lists(st.text(max_size=3), max_size=2)),
        "r": st.fixed_dictionaries({"deep": st.none() | st.just({"v": 5})}),
        "day": st.dates(),
        "ms": st.integers(-(10**12), 10**12).map(lambda s: datetime.fromtimestamp(s // 1000, UTC)),
        "us": st.datetimes(datetime(1900, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
        "local": st.datetimes(datetime(1900, 1, 1)),  # noqa: DTZ001
        "dec": st.integers(-(10**12) + 1, 10**12 - 1).map(lambda whole: Decimal(whole) / 1000),
    }
)


@given(st.lists(VALUES, max_size=6))
@settings(max_examples=60, deadline=None)
def test_round_trip_from_fastavro(values: list[dict[str, Any]]) -> None:
    result = both(WIDE, WIDE, written(WIDE, *values))
    assert result.bad == ()
    wanted = [{**value, "m": list(value["m"].items())} for value in values]
    assert result.values.to_pylist() == wanted


@given(st.lists(VALUES, min_size=1, max_size=3), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_damaged_values_never_raise_and_do_not_affect_others(
    values: list[dict[str, Any]], chance: random.Random
) -> None:
    good = written(WIDE, *values)
    rows = [data for whole in good for data in (whole, mutated(whole, chance), whole)]
    result = both(WIDE, WIDE, rows)
    for at, whole in enumerate(good):
        before, after = result.values[3 * at], result.values[3 * at + 2]
        assert before.is_valid
        assert before.equals(after)
        assert 3 * at not in reasons(result)
        assert whole == rows[3 * at]


@pytest.mark.parametrize(
    ("schema", "data", "reason"),
    [
        ("long", b"", "ends too early"),
        ("long", b"\x80" * 10 + b"\x01", "longer than it may be"),
        ("int", zigzag(2**31), "longer than it may be"),
        ("string", zigzag(-1), "a length is negative"),
        ("string", zigzag(2**62), "longer than the value"),
        ("string", b"\x02\xff", "not UTF-8"),
        ("string", b"\x06\xed\xa0\x80", "not UTF-8"),
        ("boolean", b"\x02", "neither 0 nor 1"),
        ("double", b"1234567", "ends too early"),
        ("int", b"\x02\x02", "left over"),
        (["null", "int"], b"\x04", "branch does not exist"),
        (["null", "int"], b"\x01", "branch does not exist"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "symbol is not known"),
        ({"type": "array", "items": "null"}, zigzag(2**40) + b"\0", "more items than"),
        ({"type": "array", "items": "long"}, zigzag(-(2**63)) + b"\0\0", "a length is negative"),
        ({"type": "array", "items": "long"}, zigzag(-1) + zigzag(99) + b"\0", "a length is neg"),
        ({"type": "fixed", "name": "F", "size": 1 << 24}, b"12", "ends too early"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x02\x64", "does not fit"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38},
         b"\x24" + b"\x01" + bytes(17), "does not fit"),
        ({"type": "long", "logicalType": "timestamp-millis"}, zigzag(2**62), "does not fit"),
    ],
)  # fmt: skip
def test_invalid_values_have_reasons(schema: Any, data: bytes, reason: str) -> None:
    whole = record(("v", schema))
    result = by_kernel(whole, whole, [data])
    assert reason in result.bad[0].reason


@pytest.mark.parametrize(
    ("schema", "data", "reason"),
    [
        ("long", b"", "ends too early"),
        ("int", zigzag(2**31), "longer than it may be"),
        ("string", zigzag(2**62), "ends too early"),
        ("string", b"\x02\xff", "not UTF-8"),
        ("boolean", b"\x02", "neither 0 nor 1"),
        ("int", b"\x02\x02", "left over"),
        (["null", "int"], b"\x04", "branch does not exist"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x02", "symbol is not known"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x02\x64", "does not fit"),
        ({"type": "long", "logicalType": "timestamp-millis"}, zigzag(2**62), "does not fit"),
    ],
)
def test_invalid_values_have_reasons_without_the_kernel(
    schema: Any, data: bytes, reason: str
) -> None:
    whole = record(("v", schema))
    result = by_fastavro(whole, whole, [data])
    assert result.values.to_pylist() == [None]
    assert reason in result.bad[0].reason


def test_skipped_nested_type_is_not_expanded_exponentially() -> None:
    inner: Any = "int"
    for level in range(40):
        name = f"L{level}"
        inner = record(("a", inner), ("b", inner if level == 0 else f"L{level - 1}"), name=name)
    writer = record(("v", "int"), ("w", ["null", inner]))
    assert both(writer, record(("v", "int")), [b"\x0e\x00"]).values.to_pylist() == [{"v": 7}]


def test_fastavro_replaces_a_missing_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avrocolumns, "_module", avrofallback)
    schema = avroschema.parse(json.dumps(record(("v", "int"))))
    result = open_translation(schema, schema).run(column(b"\x0e"))
    assert result.values.to_pylist() == [{"v": 7}]


def test_missing_kernel_and_fastavro_is_a_config_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avrocolumns, "_module", avrofallback)
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ConfigError, match=r"install rookery\[decode\]"):
        opened("avro", schema='"int"')


@pytest.mark.parametrize(
    "schema",
    [
        record(("v", {"type": "array", "items": "null"})),
        record(("v", {"type": "map", "values": "int"}), ("next", ["null", "R"])),
        record(("v", "int"), ("w", {"type": "array", "items": "R"})),
        record(("v", "int"), ("w", {"type": "array", "items": record(("n", "N"), name="N")})),
    ],
)
def test_schemas_unsafe_for_fastavro_need_the_kernel(schema: Any) -> None:
    reader = record() if len(schema["fields"]) > 1 else schema
    with pytest.raises(ConfigError, match="needs the compiled module"):
        by_fastavro(schema, reader, [])


def test_blocks_with_sizes_are_read() -> None:
    schema = record(("v", {"type": "array", "items": "int"}))
    data = zigzag(-2) + zigzag(2) + b"\x02\x04" + zigzag(1) + b"\x06" + b"\0"
    assert both(schema, schema, [data]).values.to_pylist() == [{"v": [1, 2, 3]}]


def test_long_decimals_and_nanoseconds_are_decoded() -> None:
    schema = record(
        ("d", {"type": "fixed", "name": "D", "size": 20, "logicalType": "decimal",
               "precision": 38, "scale": 4}),
        ("t", {"type": "long", "logicalType": "timestamp-nanos"}),
    )  # fmt: skip
    whole = -(10**38) + 1
    data = whole.to_bytes(20, "big", signed=True) + zigzag(1_234_567_891)
    values = both(schema, schema, [data]).values
    assert values[0]["d"].as_py() == Decimal(f"{whole // 10**4 + 1}.9999")
    assert values[0]["t"].value == 1_234_567_891


# ---- resolution


def test_fields_are_reordered_removed_and_defaulted() -> None:
    nested = record(("x", "int"), ("y", "string", "why"), name="N")
    writer = record(
        ("gone", {"type": "map", "values": ["null", record(("q", "string"), name="Q")]}),
        ("old", "int"),
        ("kept", "string"),
    )
    reader = record(
        ("kept", "string"),
        ("new", ["null", "string"], None),
        ("number", "double", 1.5),
        ("list", {"type": "array", "items": "int"}, [1, 2]),
        ("nested", nested, {"x": 7}),
        ("when", {"type": "long", "logicalType": "timestamp-millis"}, 1000),
        ("raw", "bytes", "\u00ff"),
    )
    reader["fields"].append({"name": "renamed", "type": "long", "aliases": ["old"]})
    data = written(writer, {"gone": {"a": {"q": "z"}, "b": None}, "old": 3, "kept": "k"})
    result = both(writer, reader, data)
    wanted: Any = fastavro.schemaless_reader(
        io.BytesIO(data[0]), fastavro.parse_schema(writer), fastavro.parse_schema(reader)
    )
    wanted["when"] = datetime.fromtimestamp(1, UTC)
    wanted["raw"] = b"\xff"
    assert result.values.to_pylist() == [{**wanted, "nested": {"x": 7, "y": "why"}}]


@pytest.mark.parametrize(
    ("writer", "reader", "value", "wanted"),
    [
        ("int", "long", 5, 5),
        ("int", "float", 5, 5.0),
        ("long", "double", -(2**40), -float(2**40)),
        ("float", "double", 1.5, 1.5),
        ("string", "bytes", "é", "é".encode()),
        ("bytes", "string", b"x", "x"),
        ("int", ["null", "long"], 5, 5),
        (["null", "int"], ["null", "double"], None, None),
        (["int", "null"], "int", 5, 5),
        (["null", "int", "string"], ["null", "int", "string"], "s",
         {"member0": None, "member1": "s"}),
        (["null", "int", "string"], ["null", "int", "string"], None, None),
        ("int", ["string", "double"], 5, {"member0": None, "member1": 5.0}),
    ],
)  # fmt: skip
def test_types_are_promoted(writer: Any, reader: Any, value: Any, wanted: Any) -> None:
    theirs, ours = record(("v", writer)), record(("v", reader))
    result = both(theirs, ours, written(theirs, {"v": value}))
    assert result.bad == ()
    assert result.values.to_pylist() == [{"v": wanted}]


def test_times_are_converted_to_the_unit_of_the_reader() -> None:
    units = {"millis": 1_000_000, "micros": 1000, "nanos": 1}
    for theirs, unit in units.items():
        for ours in units:
            writer = record(("v", {"type": "long", "logicalType": f"timestamp-{theirs}"}))
            reader = record(("v", {"type": "long", "logicalType": f"timestamp-{ours}"}))
            values = both(writer, reader, [zigzag(-3_000_001 // unit)]).values
            nanos = values[0]["v"].cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).as_py()
            step = max(unit, 1 if ours == "nanos" else 1000)
            assert nanos == -3_000_001 // unit * unit // step * step


def test_enums_are_resolved_by_symbol_with_a_default() -> None:
    writer = record(("v", {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}))
    strict = record(("v", {"type": "enum", "name": "E", "symbols": ["C", "A"]}))
    lenient = record(("v", {"type": "enum", "name": "E", "symbols": ["C", "A"], "default": "C"}))
    data = written(writer, {"v": "A"}, {"v": "B"}, {"v": "C"})
    assert [row and row["v"] for row in to_list(both(writer, strict, data).values)] == [
        "A", None, "C",
    ]  # fmt: skip
    assert [row["v"] for row in to_list(both(writer, lenient, data).values)] == ["A", "C", "C"]


def test_incompatible_branches_are_bad_rows() -> None:
    writer, reader = record(("v", ["string", "int"])), record(("v", "int"))
    result = both(writer, reader, written(writer, {"v": "s"}, {"v": 3}))
    assert reasons(result) == {0: "not Avro: the writer's schema does not fit the reader's"}
    missing = record(("v", "int"), ("w", "int"))
    result = both(record(("v", "int")), missing, written(record(("v", "int")), {"v": 1}))
    assert "does not fit" in result.bad[0].reason


LINKED = record(("x", "int"), ("next", ["null", "R"]))


def test_recursive_types_are_refused_as_columns_but_can_be_skipped() -> None:
    with pytest.raises(ConfigError, match="'R' contains itself"):
        opened("avro", schema=json.dumps(LINKED))
    data = written(LINKED, {"x": 1, "next": {"x": 2, "next": None}})
    assert by_kernel(LINKED, record(("x", "int")), data).values.to_pylist() == [{"x": 1}]
    endless = b"\x02" * 100_000
    assert "nested too deeply" in by_kernel(LINKED, record(("x", "int")), [endless]).bad[0].reason


@pytest.mark.parametrize(
    "schema",
    [None, b"x", "{", "{}", "[]", '"nothing"', '["int","int"]', '{"type":"record","name":"R"}',
     '{"type":"fixed","name":"F","size":-1}', '{"type":"enum","name":"E","symbols":["A","A"]}',
     '{"type":"array"}', "[" * 100_000, '{"type":"record","name":"1","fields":[]}'],
)  # fmt: skip
def test_invalid_schema_is_refused(schema: Any) -> None:
    with pytest.raises(ConfigError, match=r"schema|Avro"):
        opened("avro", schema=schema)


def test_a_default_of_another_type_is_refused() -> None:
    reader = record(("v", "int", "x"))
    with pytest.raises(ConfigError, match="field 'v': default 'x' is not a int"):
        both(record(), reader, [])


def test_nulls_and_slices_are_decoded() -> None:
    schema = record(("v", "int"), ("s", "string"))
    data = written(schema, *({"v": at, "s": str(at)} for at in range(4)))
    decoder = opened("avro", schema=json.dumps(schema))
    result = decoded(decoder, [data[0], None, b"\xff", data[3]])
    assert [row and row["v"] for row in result.values.to_pylist()] == [0, None, None, 3]
    part = decoder.decode(column(*data).slice(1, 2))
    assert [row["s"] for row in to_list(part.values)] == ["1", "2"]
    assert decoder.decode(column()).values.to_pylist() == []


def test_dates_and_names_of_the_wide_type() -> None:
    schema = record(("d", {"type": "int", "logicalType": "date"}))
    assert both(schema, schema, written(schema, {"d": date(1969, 7, 20)})).values.to_pylist() == [
        {"d": date(1969, 7, 20)}
    ]
