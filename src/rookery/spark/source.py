"""Options of the format `rookery`, of one DataFrame or of a table in Spark's catalog.

    CREATE TABLE … USING rookery OPTIONS (…)

Spark passes a table's options to a Python source when the table is created, and requests the
columns. When the table is read or written, the source receives these columns and only the options
of the statement (pyspark 4.2 and 4.3). So a table's options are stored in the metadata of its
columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructField, StructType

from rookery.errors import ConfigError
from rookery.spark.rawoptions import check_no_secrets
from rookery.spark.read.options import ReadOptions, limits_in
from rookery.spark.schema import names_of, spark_schema

# The prefix of the table's options among the properties that Spark passes.
_PREFIX: Final = "option."
_PROVIDER: Final = "provider"
_NOTE: Final = "rookery"
_PLACES: Final = frozenset({"store", "cluster", "data", "logdir"})


class SourceOptions:
    """Options as Spark passes them to a source, for its readers and writers."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Separate a table's options from a statement's.

        Raises:
            ConfigError: the options contain a secret, or a table has none.
        """
        self._table = find_table_options(options)
        self._options = options if self._table is None else self._table
        check_no_secrets(self._options)

    def schema(self) -> StructType:
        """Return the columns to read: those of Spark's Kafka source, or the selected ones.

        Raises:
            ConfigError: an option is invalid.
        """
        columns = spark_schema(ReadOptions.columns_of(self._options))
        return columns if self._table is None else store_options(columns, self._table)

    def of_reader(self, schema: StructType, *, is_stream: bool = False) -> ReadOptions:
        """Return the options of a reader; a schema given by the user selects columns.

        Raises:
            ConfigError: an option or the schema cannot be used.
        """
        given = merge_options(load_options(schema), self._options)
        options = ReadOptions.of(given, is_stream=is_stream)
        return options.with_columns(names_of(schema))

    def of_writer(self, schema: StructType) -> tuple[dict[str, str], StructType]:
        """Return the options and columns of a writer."""
        given = merge_options(load_options(schema), self._options)
        if given == dict(self._options):
            return given, schema
        from rookery.spark.write.taskoutput import writable  # noqa: PLC0415 (readers need none)

        return choose_topic(given), writable(schema)

    def refuse_stream(self, error: ImportError) -> ConfigError:
        """Return the error for a Spark version that lacks the modules for streams."""
        given = limits_in(self._options)
        what = f"{', '.join(given)}: limits of batches" if given else "streams"
        return ConfigError(f"{what} need pyspark 4.2 or later: {error}")


def find_table_options(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table that is being created; None if they are not a table's.

    Raises:
        ConfigError: the table has no options.
    """
    table_options = {
        name[len(_PREFIX) :]: value
        for name, value in options.items()
        if name.lower().startswith(_PREFIX)
    }
    if not table_options and _PROVIDER in options:
        raise ConfigError(
            "CREATE TABLE … USING rookery: say which topic it is, and where: OPTIONS (cluster "
            "'NAME', subscribe 'TOPIC')"
        )
    return table_options or None


def store_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return columns with a table's options in their metadata."""
    note = {_NOTE: json.dumps(options, sort_keys=True)}
    return StructType(
        [StructField(field.name, field.dataType, field.nullable, note) for field in schema.fields]
    )


def load_options(schema: StructType) -> dict[str, str]:
    """Return the options in the metadata of columns; empty if they are not a table's."""
    notes = [field.metadata[_NOTE] for field in schema.fields if _NOTE in field.metadata]
    options: dict[str, str] = json.loads(notes[0]) if notes else {}
    return options


def merge_options(table: Mapping[str, str], statement: Mapping[str, str]) -> dict[str, str]:
    """Merge the options of a table and of a statement, which take precedence.

    If the statement names a location, the table's options are ignored.

    Raises:
        ConfigError: there are none.
    """
    if not table and not statement:
        raise ConfigError(
            "no option is given, so there is nothing to read. If this is a table: make it without "
            "a list of columns, CREATE TABLE … USING rookery OPTIONS (…); the option `columns` "
            "chooses some"
        )
    own = {name.lower() for name in statement}
    if own & _PLACES:
        # Columns of a table that are written elsewhere still carry the table's options; ignore
        # them.
        return dict(statement)
    return {name: value for name, value in table.items() if name.lower() not in own} | dict(
        statement
    )


def choose_topic(options: Mapping[str, str]) -> dict[str, str]:
    """Return a table's options for inserts: rows go to the subscribed topic, if there is one."""
    given = {name.lower(): value for name, value in options.items()}
    topics = [topic.strip() for topic in given.get("subscribe", "").split(",") if topic.strip()]
    if "topic" in given or len(topics) != 1:
        return dict(options)
    return {**options, "topic": topics[0]}
