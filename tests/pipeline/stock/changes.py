"""Changes of tables by stock engines, and the same changes to the expected rows."""

from __future__ import annotations

from typing import Final, NamedTuple

import duckdb
from deltalake import DeltaTable

from tests.pipeline.stock.readers import LakeTable, spark_name
from tests.pipeline.stock.sqlengine import Row, SqlEngine


class Changes(NamedTuple):
    """Statements in the SQL that Spark and DuckDB share."""

    statements: tuple[str, ...]
    by_library: str
    """Which rows pyiceberg or delta-rs deletes."""
    last: str
    """A statement after the table was compacted."""


_MERGE: Final = """
MERGE INTO {table} AS t
USING (SELECT CAST(5 AS BIGINT) AS id, 'merged' AS name UNION ALL SELECT 1000, 'inserted') AS s
ON t.id = s.id
WHEN MATCHED THEN UPDATE SET name = s.name
WHEN NOT MATCHED THEN INSERT (id, name, rookery_key) VALUES (s.id, s.name, 'k1000')
"""
CHANGES: Final = {
    "bronze": Changes(
        statements=("DELETE FROM {table} WHERE key = CAST('k7' AS BINARY)",),
        by_library='"offset" = 8',
        last="DELETE FROM {table} WHERE key = CAST('k9' AS BINARY)",
    ),
    "silver": Changes(
        statements=(
            "DELETE FROM {table} WHERE id % 10 = 3",
            "UPDATE {table} SET name = 'renamed' WHERE id % 10 = 4",
            _MERGE,
        ),
        by_library="id = 7",
        last="DELETE FROM {table} WHERE id % 10 = 6",
    ),
}
CHANGED_FORMATS: Final = ("iceberg", "delta", "duckdb")
"""No other engine can write a folder of Parquet files with its log of versions."""


def expect_bronze(rows: list[Row]) -> list[Row]:
    """Return what the changes leave of rows of bronze."""
    keys = {b"k7".hex(), b"k9".hex()}
    return [row for row in rows if row["key"] not in keys and row["offset"] != 8]


def expect_silver(rows: list[Row]) -> list[Row]:
    """Return what the changes leave of rows of silver."""
    kept = [row for row in rows if row["id"] % 10 not in (3, 6) and row["id"] != 7]
    inserted = dict.fromkeys(rows[0]) | {"id": 1000, "name": "inserted", "rookery_key": "k1000"}
    return [*(row | {"name": _name(row)} for row in kept), inserted]


def change_iceberg(spark: SqlEngine, table: LakeTable, changes: Changes) -> None:
    """Change and compact a table, and leave deletes that readers merge."""
    name = spark_name(table)
    for statement in changes.statements:
        spark.execute(statement.format(table=name))
    table.iceberg.delete(changes.by_library)
    procedure = f"CALL rookery.system.rewrite_data_files(table => 'default.{table.name}', "
    [done] = spark.execute(f"{procedure}options => map('rewrite-all', 'true'))")
    assert done["rewritten_data_files_count"] > 0
    properties = "'write.delete.mode' = 'merge-on-read'"
    spark.execute(f"ALTER TABLE {name} SET TBLPROPERTIES ({properties})")
    spark.execute(changes.last.format(table=name))
    [marks] = spark.execute(f"SELECT count(*) AS files FROM {name}.delete_files")  # noqa: S608
    assert marks["files"] > 0


def change_delta(spark: SqlEngine, table: LakeTable, changes: Changes) -> None:
    """Change and compact a table."""
    name = spark_name(table)
    for statement in changes.statements:
        spark.execute(statement.format(table=name))
    DeltaTable(table.location).delete(changes.by_library)
    [done] = spark.execute(f"OPTIMIZE {name}")
    assert done["metrics"]["totalConsideredFiles"] > 0
    spark.execute(changes.last.format(table=name))


def change_duckdb(table: LakeTable, changes: Changes) -> None:
    """Change and compact a table by the newest DuckDB, which wrote it."""
    with duckdb.connect(table.location) as database:
        for statement in changes.statements:
            database.execute(statement.format(table=table.name))
        database.execute(f"DELETE FROM {table.name} WHERE {changes.by_library}")  # noqa: S608
        database.execute("VACUUM")
        database.execute("CHECKPOINT")
        database.execute(changes.last.format(table=table.name))


def _name(row: Row) -> str:
    if row["id"] == 5:
        return "merged"
    return "renamed" if row["id"] % 10 == 4 else str(row["name"])
