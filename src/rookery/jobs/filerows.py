"""Rows of files as records: which columns become key, value, time and headers.

The columns of Parquet are those of all files of a slice, and of the folders they lie in if these
are called `name=value` as Hive does it: a column that only some files have is null in the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from rookery.errors import ConfigError
from rookery.jobs.importtask import FILE, START

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ROLES: Final = ("key", "value", "timestamp")
# What a pattern of Hadoop's has and a name has not.
_PATTERN: Final = re.compile(r"[*?\[{\\]")
# Else `hour=03` would be a number in one slice, and text in the next one, which has `hour=none`.
_FOLDERS_AS_TEXT: Final = {"spark.sql.sources.partitionColumnTypeInference.enabled": "false"}


@dataclass(frozen=True, slots=True)
class ImportFiles:
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
    spark: SparkSession, paths: list[str], files: ImportFiles
) -> tuple[DataFrame, tuple[str, ...]]:
    """Return the rows of some files as records, and the names of the columns that they have.

    Raises:
        ConfigError: a column is not there, or the files are of another format.
    """
    if files.format == "json":
        return _from_json(spark, paths, files)
    return _from_parquet(spark, paths, files)


def _from_json(
    spark: SparkSession, paths: list[str], files: ImportFiles
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
    spark: SparkSession, paths: list[str], files: ImportFiles
) -> tuple[DataFrame, tuple[str, ...]]:
    from pyspark.sql import functions as sql  # noqa: PLC0415

    table = _table(spark, paths, files)
    names = table.columns
    wanted = {name: getattr(files, name) for name in _ROLES}
    missing = [name for name in wanted.values() if name and name not in names]
    if missing:
        raise ConfigError(f"import: there is no column {', '.join(missing)}; there are {names}")
    kinds = dict(table.dtypes)
    columns: dict[str, Column] = {}
    for name, chosen in wanted.items():
        source = chosen or (name if name in names else "")
        if source:
            columns[name] = _cast(name, source, kinds[source])
    if "value" in columns:
        _check_values(spark, paths, files.value or "value", names)
    else:
        columns["value"] = sql.to_json(sql.struct("*"))
    if "headers" in names:
        columns["headers"] = sql.col("headers")
    return _selected(table, columns)


def _table(spark: SparkSession, paths: list[str], files: ImportFiles) -> DataFrame:
    """Open Parquet files, with the columns of all of them and of their folders."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped] # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    reader = spark.read.option("mergeSchema", "true")
    if _has_columns(paths, files.path):
        reader = reader.option("basePath", _folder(files.path))
    try:
        with changed(spark, _FOLDERS_AS_TEXT):
            table = reader.parquet(*paths)
            table.columns  # noqa: B018 (over Connect, nothing is looked at before)
    except (PySparkException, Py4JError) as error:  # with pages of Java's
        raise ConfigError(f"import: {paths[0]} or one behind it {_trouble(str(error))}") from error
    return table


def _trouble(text: str) -> str:
    """Say why files cannot be opened together."""
    if "CANNOT_MERGE" in text:
        return "has a column of another type than the others; import them one by one"
    if "irectory structures" in text or "artition column" in text:
        return "lies in folders of other names (name=value) than the others; import them one by one"
    return "is no Parquet file; if these are JSON lines, say so (--format json)"


def _folder(path: str) -> str:
    """Return the folder from which on folders' names are columns: that before any pattern."""
    parts = path.split("/")
    fixed = next((at for at, part in enumerate(parts) if _PATTERN.search(part)), len(parts))
    return "/".join(parts[:fixed]) or ("/" if path.startswith("/") else ".")


def _has_columns(paths: list[str], path: str) -> bool:
    """Whether files lie in folders that may be columns; one that was named itself does not."""
    is_named = len(paths) == 1 and paths[0].rpartition("/")[2] == path.rpartition("/")[2]
    return not is_named and any("=" in one.rpartition("/")[0] for one in paths)


def _check_values(spark: SparkSession, paths: list[str], value: str, names: list[str]) -> None:
    """Refuse files without the column that is the value: their rows would delete their keys."""
    if set(names) <= {*_ROLES, "headers", value}:
        return
    for path in paths:
        columns = spark.read.parquet(path).columns
        if value not in columns and f"/{value}=" not in path:
            raise ConfigError(
                f"import: {path} has no column {value}, which is the value in files beside it; "
                f"there are {columns}; import them one by one"
            )


@contextmanager
def changed(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Have some of Spark's settings otherwise for a while."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


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
