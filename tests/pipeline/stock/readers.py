"""Reads a table of each format with each engine, also earlier versions: a function per pair."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from tests.pipeline.stock.shell import plain
from tests.pipeline.stock.sqlengine import Row, SqlEngine

CATALOG = "catalog.db"


class LakeTable(NamedTuple):
    """A table as its format's readers know it."""

    format: str
    location: Path

    @property
    def name(self) -> str:
        return self.location.name.removesuffix(".duckdb")

    @property
    def iceberg(self) -> Table:
        uri = f"sqlite:///{self.location.parent / CATALOG}"
        return load_catalog("rookery", type="sql", uri=uri).load_table(f"default.{self.name}")

    def version(self) -> int:
        """Return the number by which the present state can be read later."""
        match self.format:
            case "iceberg":
                snapshot = self.iceberg.current_snapshot()
                assert snapshot is not None
                return snapshot.snapshot_id
            case "delta":
                return DeltaTable(self.location).version()
            case "parquet":
                return max(int(path.stem) for path in self._log("log"))
            case other:
                raise AssertionError(f"{other} keeps no earlier states")

    def files(self, version: int | None) -> list[str]:
        """Return the files of a Parquet table, as docs/guide/pipeline.md says."""
        files: set[str] = set()
        for path in self._log("log"):
            entry = json.loads(path.read_text())
            if version is None or entry["version"] <= version:
                files -= set(entry["removed"])
                files |= {file["path"] for file in entry["added"]}
        return [str(self.location / file) for file in sorted(files)]

    def _log(self, part: str) -> list[Path]:
        return sorted((self.location / "_rookery" / part).glob("*.json"))


Read = Callable[[LakeTable, int | None], list[Row]]


class Readers:
    """All engines, by the format that they read."""

    def __init__(self, spark: SqlEngine, duck: SqlEngine) -> None:
        self._spark = spark
        self._duck = duck
        self._by_format: dict[str, dict[str, Read]] = {
            "iceberg": {
                "spark": self._spark_iceberg,
                "duckdb": self._duckdb_iceberg,
                "pyiceberg": _pyiceberg,
                "polars": _polars_iceberg,
            },
            "delta": {
                "spark": self._spark_delta,
                "duckdb": self._duckdb_delta,
                "delta-rs": _delta_rs,
                "polars": _polars_delta,
            },
            "parquet": {
                "spark": self._spark_parquet,
                "duckdb": self._duckdb_parquet,
                "polars": _polars_parquet,
            },
            "duckdb": {"duckdb": _own_duckdb, "polars": _polars_duckdb},
        }

    def read(self, table: LakeTable, version: int | None = None) -> dict[str, list[Row]]:
        """Return the rows that each engine finds, in order."""
        readers = self._by_format[table.format]
        return {name: in_order(read(table, version)) for name, read in readers.items()}

    def _spark_iceberg(self, table: LakeTable, version: int | None) -> list[Row]:
        return self._spark.execute(f"SELECT * FROM {spark_name(table)}{_as_of(version)}")  # noqa: S608

    def _spark_delta(self, table: LakeTable, version: int | None) -> list[Row]:
        return self._spark.execute(f"SELECT * FROM {spark_name(table)}{_as_of(version)}")  # noqa: S608

    def _spark_parquet(self, table: LakeTable, version: int | None) -> list[Row]:
        files = ",".join(table.files(version)).replace(f"{table.location}/", "")
        return self._spark.execute(f"SELECT * FROM parquet.`{table.location}/{{{files}}}`")  # noqa: S608

    def _duckdb_iceberg(self, table: LakeTable, version: int | None) -> list[Row]:
        chosen = "" if version is None else f", snapshot_from_id => {version}"
        location = table.iceberg.metadata_location
        return self._duck.execute(f"FROM iceberg_scan('{location}'{chosen})")

    def _duckdb_delta(self, table: LakeTable, version: int | None) -> list[Row]:
        chosen = "" if version is None else f", version => {version}"
        return self._duck.execute(f"FROM delta_scan('{table.location}'{chosen})")

    def _duckdb_parquet(self, table: LakeTable, version: int | None) -> list[Row]:
        files = table.files(version)
        return self._duck.execute(f"FROM read_parquet({files}, union_by_name => true)")


def spark_name(table: LakeTable) -> str:
    """Return what stock Spark calls a table."""
    if table.format == "iceberg":
        return f"rookery.default.{table.name}"
    return f"delta.`{table.location}`"


def in_order(rows: list[Row]) -> list[Row]:
    """Return rows in an order that does not depend on the engine."""
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def _as_of(version: int | None) -> str:
    return "" if version is None else f" VERSION AS OF {version}"


def _pyiceberg(table: LakeTable, version: int | None) -> list[Row]:
    rows: list[Row] = plain(table.iceberg.scan(snapshot_id=version).to_arrow().to_pylist())
    return rows


def _delta_rs(table: LakeTable, version: int | None) -> list[Row]:
    table_rows = DeltaTable(table.location, version=version).to_pyarrow_table()
    rows: list[Row] = plain(table_rows.to_pylist())
    return rows


def _polars_iceberg(table: LakeTable, version: int | None) -> list[Row]:
    with pytest.MonkeyPatch.context() as patch:
        # polars finds the files by pyiceberg, unless a further package is installed, and says so.
        patch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
        frame = pl.scan_iceberg(table.iceberg, snapshot_id=version).collect()
    rows: list[Row] = plain(frame.to_dicts())
    return rows


def _polars_delta(table: LakeTable, version: int | None) -> list[Row]:
    rows: list[Row] = plain(pl.read_delta(str(table.location), version=version).to_dicts())
    return rows


def _polars_parquet(table: LakeTable, version: int | None) -> list[Row]:
    rows: list[Row] = plain(pl.read_parquet(table.files(version)).to_dicts())
    return rows


def _own_duckdb(table: LakeTable, version: int | None) -> list[Row]:
    with duckdb.connect(table.location, read_only=True) as database:
        rows: list[Row] = plain(database.sql(f"FROM {table.name}").to_arrow_table().to_pylist())
    return rows


def _polars_duckdb(table: LakeTable, version: int | None) -> list[Row]:
    with duckdb.connect(table.location, read_only=True) as database:
        rows: list[Row] = plain(database.sql(f"FROM {table.name}").pl().to_dicts())
    return rows
