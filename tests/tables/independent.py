"""Reads tables without any code of Rookery."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog


def rows_of(spec: Any) -> list[tuple[object, ...]]:
    """Return all rows of a table at a local path, in order."""
    location = Path(spec.location)
    table = globals()[f"_{spec.format}"](location, spec.name or location.name)
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr_of_first)


def repr_of_first(row: tuple[object, ...]) -> tuple[str, ...]:
    """Order rows of any types: numbers by size, others as text."""
    return tuple(f"{value:020}" if isinstance(value, int) else repr(value) for value in row)


def _iceberg(location: Path, name: str) -> pa.Table:
    uri = f"sqlite:///{location.parent / 'catalog.db'}"
    catalog = load_catalog("rookery", type="sql", uri=uri)
    table: pa.Table = catalog.load_table(f"default.{name}").scan().to_arrow()
    return table


def _delta(location: Path, name: str) -> pa.Table:
    return DeltaTable(location).to_pyarrow_table()


def _duckdb(location: Path, name: str) -> pa.Table:
    with duckdb.connect(location, read_only=True) as database:
        table: pa.Table = database.sql(f'FROM "{name}"').to_arrow_table()
        return table


def _parquet(location: Path, name: str) -> pa.Table:
    """Follow the log from its newest checkpoint, as docs/guide/pipeline.md tells."""
    files: set[str] = set()
    seen = 0
    checkpoints = sorted((location / "_rookery/checkpoints").glob("*.json"))
    if checkpoints:
        checkpoint = json.loads(checkpoints[-1].read_text())
        files = {file["path"] for file in checkpoint["files"]}
        seen = checkpoint["version"]
    for path in sorted((location / "_rookery/log").glob("*.json")):
        entry = json.loads(path.read_text())
        if entry["version"] > seen:
            files -= set(entry["removed"])
            files |= {file["path"] for file in entry["added"]}
    tables = [pq.read_table(location / file) for file in sorted(files)]
    return pa.concat_tables(tables, promote_options="permissive")
