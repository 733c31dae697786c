"""Delta tables with features of other engines that cannot be read here."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, TableFeatures

from rookery.clock import SystemClock
from rookery.errors import ConfigError
from rookery.tables.open import open_table
from rookery.tables.port import BatchName, Table, TableSpec, UpkeepPolicy

SCHEMA = pa.schema([pa.field("id", pa.int64())])


def add(table: Table, batch: int) -> bool:
    name = BatchName("birds", "a1", batch)
    rows = pa.RecordBatch.from_pylist([{"id": batch}], SCHEMA)
    return table.commit(name, table.stage(name, [rows], SCHEMA, "t"), SCHEMA)


def test_rows_deleted_by_deletion_vectors_are_not_read(tmp_path: Path) -> None:
    spec = TableSpec("delta", str(tmp_path / "birds"), "birds")
    table = open_table(spec)
    add(table, 0)
    DeltaTable(tmp_path / "birds").alter.add_feature(
        TableFeatures.DeletionVectors, allow_protocol_versions_increase=True
    )

    assert add(table, 1)
    with pytest.raises(ConfigError, match="DROP FEATURE deletionVectors"):
        list(table.read())
    with pytest.raises(ConfigError, match="DROP FEATURE deletionVectors"):
        table.upkeep(UpkeepPolicy(), SystemClock().now_ms())
    files = [path.name for path in (tmp_path / "birds/data").glob("*.parquet")]
    assert len(files) == 2


def test_mapped_columns_are_refused(tmp_path: Path) -> None:
    spec = TableSpec("delta", str(tmp_path / "birds"), "birds")
    table = open_table(spec)
    add(table, 0)
    map_columns(tmp_path / "birds/_delta_log")

    with pytest.raises(ConfigError, match="columnMapping"):
        add(table, 1)
    with pytest.raises(ConfigError, match="columnMapping"):
        table.schema()


def map_columns(log: Path) -> None:
    """Turn the mapping on as Spark does; deltalake cannot."""
    lines = [
        json.loads(line)
        for path in sorted(log.glob("*.json"))
        for line in path.read_text().splitlines()
    ]
    metadata = next(line["metaData"] for line in reversed(lines) if "metaData" in line)
    schema = json.loads(metadata["schemaString"])
    for number, field in enumerate(schema["fields"], 1):
        names = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": "x"}
        field["metadata"] = names
    metadata["schemaString"] = json.dumps(schema)
    metadata["configuration"] = {
        "delta.columnMapping.mode": "name",
        "delta.columnMapping.maxColumnId": "1",
    }
    actions = [{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, {"metaData": metadata}]
    path = log / f"{len(list(log.glob('*.json'))):020}.json"
    path.write_text("\n".join(map(json.dumps, actions)))
