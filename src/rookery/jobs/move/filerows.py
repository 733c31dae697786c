"""Maps rows of files to records: which columns become key, value, timestamp and headers.

The columns of Parquet are those of all files of a slice, and of their folders if these are named
`name=value` as in Hive. A column that only some files have is null in the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from rookery.errors import ConfigError
from rookery.jobs.move.importtask import FILE, START

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ROLES: Final = ("key", "value", "timestamp")
# Characters of a Hadoop glob pattern that do not occur in a plain name.
_PATTERN: Final = re.compile(r"[*?\[{\\]")
# Otherwise `hour=03` would be a number in one slice, and text in a slice with `hour=none`.
_FOLDERS_AS_TEXT: Final = {"spark.sql.sources.partitionColumnTypeInference.enabled": "false"}


@dataclass(frozen=True, slots=True)
class ImportFiles:
    """The files to import, and how rows become records."""

    path: str
    """A file, a folder or a pattern, in Spark's syntax."""
    format: Literal["parquet", "json"] = "parquet"
    key: str = ""
    """The key column; empty: `key` if it exists, otherwise no key."""
    value: str = ""
    """The value column; empty: `value` if it exists, otherwise the row as JSON."""
    timestamp: str = ""
    """The timestamp column; empty: `timestamp` if it exists, otherwise the time of the import."""


def records_of(
    spark: SparkSession, paths: list[str], files: ImportFiles
) -> tuple[DataFrame, tuple[str, ...]]:
    """Return the rows of files as records, and the names of the columns that they have.

    Raises:
        ConfigError: a column does not exist, or the files have another format.
    """
    if files.format == "json":
        return _from_json(spark, paths, files)
    return _from_parquet(spark, paths, files)


def _from_json(
    spark: SparkSession, paths: list[str], files: ImportFiles
) -> tuple[DataFrame, tuple[str, ...]]:
    """Return lines as records: the value is the line itself, unless a field is chosen."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    def member(name: str) -> Column:
        return sql.get_json_object("value", f"$['{name}']")

    lines = spark.read.text(paths).where("length(trim(value)) > 0")
    columns = {"value": member(files.value) if files.value else sql.col("value")}
    if files.key:
        columns["key"] = member(files.key)
    if files.timestamp:
        columns["timestamp"] = _time(member(files.timestamp))
    return _select(lines, columns)


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
    return _select(table, columns)


def _table(spark: SparkSession, paths: list[str], files: ImportFiles) -> DataFrame:
    """Open Parquet files, with the columns of all of them and of their folders."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped] # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    reader = spark.read.option("mergeSchema", "true")
    if _has_columns(paths, files.path):
        reader = reader.option("basePath", _folder(files.path))
    try:
        with change_settings(spark, _FOLDERS_AS_TEXT):
            table = reader.parquet(*paths)
            table.columns  # noqa: B018 (over Connect, nothing is looked at before)
    except (PySparkException, Py4JError) as error:  # the text includes a Java stack trace
        raise ConfigError(f"import: {paths[0]} or a later file {_trouble(str(error))}") from error
    return table


def _trouble(text: str) -> str:
    """Return the reason why files cannot be opened together."""
    if "CANNOT_MERGE" in text:
        return "has a column of another type than the others; import them one by one"
    if "irectory structures" in text or "artition column" in text:
        return "is in folders with other names (name=value) than the rest; import them one by one"
    return "is not a Parquet file; if these are JSON lines, say so (--format json)"


def _folder(path: str) -> str:
    """Return the folder below which folder names are columns: the part before any pattern."""
    parts = path.split("/")
    fixed = next((at for at, part in enumerate(parts) if _PATTERN.search(part)), len(parts))
    return "/".join(parts[:fixed]) or ("/" if path.startswith("/") else ".")


def _has_columns(paths: list[str], path: str) -> bool:
    """Whether files are in folders that may be columns; not so for a file named directly."""
    is_named = len(paths) == 1 and paths[0].rpartition("/")[2] == path.rpartition("/")[2]
    return not is_named and any("=" in file.rpartition("/")[0] for file in paths)


def _check_values(spark: SparkSession, paths: list[str], value: str, names: list[str]) -> None:
    """Reject files without the value column: their rows would delete their keys."""
    if set(names) <= {*_ROLES, "headers", value}:
        return
    for path in paths:
        columns = spark.read.parquet(path).columns
        if value not in columns and f"/{value}=" not in path:
            raise ConfigError(
                f"import: {path} has no column {value}, which is the value in other files; "
                f"it has {columns}; import them one by one"
            )


@contextmanager
def change_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change some of Spark's settings temporarily."""
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

    value = sql.col(f"`{column}`")
    if name == "timestamp":
        return value if kind.startswith("timestamp") else _time(value.cast("string"))
    if kind in {"binary", "string"}:
        return value
    is_plain = not kind.startswith(("struct", "array", "map", "variant"))
    return value.cast("string") if is_plain else sql.to_json(value)


def _time(text: Column) -> Column:
    """Parse a time written as milliseconds or as a date."""
    from pyspark.sql import functions as sql  # noqa: PLC0415

    millis = sql.timestamp_millis(text.try_cast("long"))
    return sql.coalesce(millis, text.try_cast("timestamp"))


def _select(rows: DataFrame, columns: dict[str, Column]) -> tuple[DataFrame, tuple[str, ...]]:
    from pyspark.sql import functions as sql  # noqa: PLC0415

    named = [column.alias(name) for name, column in columns.items()]
    places = [
        sql.col("_metadata.file_path").alias(FILE),
        sql.col("_metadata.file_block_start").alias(START),
    ]
    return rows.select(*named, *places), tuple(columns)
