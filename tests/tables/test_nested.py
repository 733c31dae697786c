"""Columns of lists and structs, such as headers: every format takes them batch after batch."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from rookery.tables.open import open_table
from rookery.tables.port import BatchName, TableSpec

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("headers", pa.list_(pa.field("element", _HEADER))),
        ("place", pa.struct([("name", pa.string()), ("tags", pa.list_(pa.string()))])),
    ]
)


@pytest.mark.parametrize("kind", ["parquet", "iceberg", "delta"])
def test_nested_columns_are_the_same_in_every_batch(tmp_path: Path, kind: str) -> None:
    spec = TableSpec(kind, str(tmp_path / "table"))
    rows = [
        {
            "id": number,
            "headers": [{"key": "k", "value": b"v%d" % number}],
            "place": {"name": "here", "tags": ["a", "b"]},
        }
        for number in range(2)
    ]
    for row in rows:
        table = open_table(spec)
        name = BatchName("p", "1a", int(str(row["id"])))
        batch = pa.RecordBatch.from_pylist([row], SCHEMA)
        assert table.commit(name, table.stage(name, [batch], SCHEMA, "t"), SCHEMA)
    found = [row for batch in open_table(spec).read() for row in batch.to_pylist()]
    assert sorted(found, key=lambda row: int(row["id"])) == rows
