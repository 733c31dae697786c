"""Columns of lists, maps and structs: every format accepts them, and they can grow."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from rookery.errors import ConfigError
from rookery.tables.open import open_table
from rookery.tables.port import BatchName, TableSpec
from tests.tables.independent import rows_of

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("headers", pa.list_(pa.field("element", _HEADER))),
        ("place", pa.struct([("name", pa.string()), ("tags", pa.list_(pa.string()))])),
        ("sizes", pa.map_(pa.string(), pa.struct([("mm", pa.int32())]))),
    ]
)


@pytest.mark.parametrize("kind", ["parquet", "iceberg", "delta", "duckdb"])
def test_nested_columns_survive_several_batches(tmp_path: Path, kind: str) -> None:
    spec = TableSpec(kind, str(tmp_path / "birds"))
    rows = [
        {
            "id": number,
            "headers": [{"key": "k", "value": b"v%d" % number}],
            "place": {"name": "here", "tags": ["a", "b"]},
            "sizes": [("wing", {"mm": number})],
        }
        for number in range(2)
    ]
    for number, row in enumerate(rows):
        add(spec, number, row, SCHEMA)
    assert read(spec) == rows


def add(spec: TableSpec, number: int, row: dict[str, Any], schema: pa.Schema) -> None:
    table = open_table(spec)
    name = BatchName("p", "1a", number)
    table.check(schema)
    batch = pa.RecordBatch.from_pylist([row], schema)
    assert table.commit(name, table.stage(name, [batch], schema, "t"), schema)


def read(spec: TableSpec) -> list[dict[str, Any]]:
    rows = [row for batch in open_table(spec).read() for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: int(row["id"]))


class Growth(NamedTuple):
    """A column's type before and after; a value of each, and the first as it is read later."""

    old: pa.DataType
    new: pa.DataType
    first: Any
    second: Any
    widened: Any


OLD = pa.struct([("x", pa.int32())])
NEW = pa.struct([("x", pa.int64()), ("y", pa.string())])
ONE, OTHER, ONE_LATER = {"x": 1}, {"x": 1 << 40, "y": "b"}, {"x": 1, "y": None}
GROWTHS = [
    Growth(OLD, NEW, ONE, OTHER, ONE_LATER),
    Growth(pa.list_(OLD), pa.list_(NEW), [ONE], [OTHER], [ONE_LATER]),
    Growth(
        pa.map_(pa.string(), OLD), pa.map_(pa.string(), NEW),
        [("a", ONE)], [("b", OTHER)], [("a", ONE_LATER)],
    ),
]  # fmt: skip


@pytest.mark.parametrize("kind", ["parquet", "iceberg", "delta", "duckdb"])
@pytest.mark.parametrize("growth", GROWTHS)
def test_fields_are_added_within_lists_and_maps(tmp_path: Path, kind: str, growth: Growth) -> None:
    spec = TableSpec(kind, str(tmp_path / "birds"))
    narrow = pa.schema([pa.field("id", pa.int64()), pa.field("it", growth.old)])
    wide = pa.schema([pa.field("id", pa.int64()), pa.field("it", growth.new)])
    add(spec, 0, {"id": 0, "it": growth.first}, narrow)

    if kind == "delta":
        with pytest.raises(ConfigError, match="can add columns, not widen"):
            open_table(spec).check(wide)
        return
    add(spec, 1, {"id": 1, "it": growth.second}, wide)
    add(spec, 2, {"id": 2, "it": growth.first}, narrow)
    expected = [growth.widened, growth.second, growth.widened]
    assert [row["it"] for row in read(spec)] == expected
    if kind != "parquet":  # whose files others read one by one
        assert [row[1] for row in rows_of(spec)] == expected
