"""Rows of files as records: which columns become key, value, time and headers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rookery.errors import ConfigError
from rookery.jobs.loading import FILE, START

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Files:
    """What is imported, and how rows become records."""

    path: str
    """A file, a folder or a pattern, as Spark reads it."""
    format: Literal["parquet", "json"] = "parquet"
    key: str = ""
    """The column that is the key; empty: `key` if there is one, else none."""
    value: str = ""
    """The column that is the value; empty: `value` if there is one, else the row as JSON."""
    timestamp: str = ""
    """The column that is the time; empty: `timestamp` if there is one, else that of the import."""


def records_of(
    spark: SparkSession, paths: list[str], files: Files
) -> tuple[DataFrame, tuple[str, ...]]:
    """Return the rows of some files as records, and the names of the columns that they have.

    Raises:
        ConfigError: a column is not there, or the files are of another format.
    """
    if files.format == "json":
        return _from_json(spark, paths, files)
    return _from_parquet(spark, paths, files)


def _from_json(
    spark: SparkSession, paths: list[str], files: Files
) -> tuple[DataFrame, tuple[str, ...]]:
    """Return lines as records: the line itself is the value, unless one of its fields is."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    def member(name: str) -> Column:
        return sql.get_json_object("value", f"$['{name}']")

    lines = spark.read.text(paths).where("length(trim(value)) > 0")
    columns = {"value": member(files.value) if files.value else sql.col("value")}
    if files.key:
        columns["key"] = member(files.key)
    if files.timestamp:
        columns["timestamp"] = _time(member(files.timestamp))
    return _selected(lines, columns)


def _from_parquet(
    spark: SparkSession, paths: list[str], files: Files
) -> tuple[DataFrame, tuple[str, ...]]:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped] # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql import functions as sql  # noqa: PLC0415

    try:
        table = spark.read.parquet(*paths)
        names = table.columns
    except (PySparkException, Py4JError) as error:  # with pages of Java's
        raise ConfigError(
            f"import: {paths[0]} or one behind it is no Parquet file; if these are JSON lines, "
            "say so (--format json)"
        ) from error
    wanted = {"key": files.key, "value": files.value, "timestamp": files.timestamp}
    missing = [name for name in wanted.values() if name and name not in names]
    if missing:
        raise ConfigError(f"import: there is no column {', '.join(missing)}; there are {names}")
    kinds = dict(table.dtypes)
    columns: dict[str, Column] = {}
    for name, chosen in wanted.items():
        source = chosen or (name if name in names else "")
        if source:
            columns[name] = _cast(name, source, kinds[source])
    if "value" not in columns:
        columns["value"] = sql.to_json(sql.struct("*"))
    if "headers" in names:
        columns["headers"] = sql.col("headers")
    return _selected(table, columns)


def _cast(name: str, column: str, kind: str) -> Column:
    from pyspark.sql import functions as sql  # noqa: PLC0415

    found = sql.col(f"`{column}`")
    if name == "timestamp":
        return found if kind.startswith("timestamp") else _time(found.cast("string"))
    if kind in {"binary", "string"}:
        return found
    is_plain = not kind.startswith(("struct", "array", "map", "variant"))
    return found.cast("string") if is_plain else sql.to_json(found)


def _time(text: Column) -> Column:
    """Return a time that is written as milliseconds, or as a date."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    millis = sql.timestamp_millis(text.try_cast("long"))
    return sql.coalesce(millis, text.try_cast("timestamp"))


def _selected(rows: DataFrame, columns: dict[str, Column]) -> tuple[DataFrame, tuple[str, ...]]:
    from pyspark.sql import functions as sql  # noqa: PLC0415

    named = [column.alias(name) for name, column in columns.items()]
    places = [
        sql.col("_metadata.file_path").alias(FILE),
        sql.col("_metadata.file_block_start").alias(START),
    ]
    return rows.select(*named, *places), tuple(columns)
