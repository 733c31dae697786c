"""Tables in a real S3: staged by one process, committed by another, read by other programs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from rookery.clock import SystemClock, Time
from rookery.errors import ConfigError
from rookery.store.address import parse
from rookery.tables.folder import below
from rookery.tables.open import open_table
from rookery.tables.port import BatchName, TableSpec, UpkeepPolicy, Upsert
from rookery.testing.seaweed import SeaweedServer

COLUMNS: dict[str, pa.DataType] = {"id": pa.int64(), "name": pa.string()}
SCHEMA = pa.schema(COLUMNS)
LATER = Time(SystemClock().now_ms() + 30 * 24 * 3600 * 1000)


def rows(*ids: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": id_, "name": str(id_)} for id_ in ids], SCHEMA)


@pytest.mark.parametrize("kind", ["parquet", "iceberg", "delta"])
def test_tables_are_stored_in_s3(kind: str, tmp_path: Path, seaweed: SeaweedServer) -> None:
    url = seaweed.url("lake")
    catalog = f"sqlite:///{tmp_path / 'catalog.db'}"
    options = {"catalog": catalog} if kind == "iceberg" else {}
    spec = TableSpec(kind, below(url, kind), "birds", options)
    for batch in range(6):
        name = BatchName("p", "a1", batch)
        table = open_table(spec)
        files = table.stage(name, [rows(batch * 2, batch * 2 + 1)], SCHEMA, "t")
        assert table.commit(name, files, SCHEMA)
        assert not open_table(spec).commit(name, files, SCHEMA)
    table = open_table(spec)
    name = BatchName("p", "a1", 6)
    changes = table.stage(name, [rows(0)], SCHEMA, "t")
    assert table.commit(name, changes, SCHEMA, Upsert(("id",)))
    done = table.upkeep(UpkeepPolicy(keep_ms=0, keep_versions=1), LATER)
    assert done.files_compacted >= 6
    assert done.files_deleted >= 6
    numbers = sorted(row["id"] for part in table.read() for row in part.to_pylist())
    assert numbers == list(range(12))
    if kind == "iceberg":
        assert _iceberg(url, catalog) == list(range(12))
    if kind == "delta":
        assert _delta(url) == list(range(12))


def _iceberg(url: str, catalog: str) -> list[int]:
    options = parse(url).options
    files = {
        "s3.endpoint": options["endpoint"],
        "s3.region": options["region"],
        "s3.access-key-id": options["access_key_id"],
        "s3.secret-access-key": options["secret_access_key"],
    }
    table = load_catalog("rookery", type="sql", uri=catalog, **files).load_table("default.birds")
    return sorted(row["id"] for row in table.scan().to_arrow().to_pylist())


def _delta(url: str) -> list[int]:
    options = {**parse(url).options, "allow_http": "true"}
    table = DeltaTable(below(url, "delta").partition("?")[0], storage_options=options)
    return sorted(row["id"] for row in table.to_pyarrow_table().to_pylist())


def test_iceberg_in_a_store_needs_a_catalog() -> None:
    table = open_table(TableSpec("iceberg", "s3://bucket/birds", "birds"))
    with pytest.raises(ConfigError, match="say `catalog`"):
        table.last_commit("p")
