"""Tables of Spark's catalog: `CREATE TABLE … USING rookery OPTIONS (…)`.

Spark shows a table's options to a source in Python when the table is made, and asks for columns.
When it is read or written, the source is passed these columns, and the options of the statement
alone (pyspark 4.2 and 4.3). So a table's options travel with its columns, as their metadata.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import StructField, StructType

from rookery.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

# How options of the table stand among what else Spark knows of it.
_PREFIX: Final = "option."
_PROVIDER: Final = "provider"
_NOTE: Final = "rookery"
_PLACES: Final = frozenset({"store", "cluster", "data", "logdir"})
_GIVEN_BY_THE_LOG: Final[tuple[str, ...]] = ("offset", "timestampType")


def declared(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table that is being made, None if these are no table's.

    Raises:
        ConfigError: it has none.
    """
    found = {
        name[len(_PREFIX) :]: value
        for name, value in options.items()
        if name.lower().startswith(_PREFIX)
    }
    if not found and _PROVIDER in options:
        raise ConfigError(
            "CREATE TABLE … USING rookery: say which topic it is, and where: OPTIONS (cluster "
            "'NAME', subscribe 'TOPIC')"
        )
    return found or None


def noted(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return columns that know a table's options."""
    note = {_NOTE: json.dumps(options, sort_keys=True)}
    return StructType(
        [StructField(one.name, one.dataType, one.nullable, note) for one in schema.fields]
    )


def told(schema: StructType) -> dict[str, str]:
    """Return the options that columns know, if they are a table's."""
    notes = [one.metadata[_NOTE] for one in schema.fields if _NOTE in one.metadata]
    found: dict[str, str] = json.loads(notes[0]) if notes else {}
    return found


def together(table: Mapping[str, str], statement: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a table and of a statement, which wins; all of it, if it has a place.

    Raises:
        ConfigError: there are none.
    """
    if not table and not statement:
        raise ConfigError(
            "no option is given, so nobody knows what to read. If this is a table: make it without "
            "a list of columns, CREATE TABLE … USING rookery OPTIONS (…); the option `columns` "
            "chooses some"
        )
    own = {name.lower() for name in statement}
    if own & _PLACES:
        # Columns of a table that are written elsewhere still know it: that is not meant.
        return dict(statement)
    return {name: one for name, one in table.items() if name.lower() not in own} | dict(statement)


def for_writing(options: Mapping[str, str]) -> dict[str, str]:
    """Return a table's options for inserts: rows go to the topic that is read, if it is one."""
    given = {name.lower(): value for name, value in options.items()}
    topics = [one.strip() for one in given.get("subscribe", "").split(",") if one.strip()]
    if "topic" in given or len(topics) != 1:
        return dict(options)
    return {**options, "topic": topics[0]}


def writable(schema: StructType) -> StructType:
    """Return the columns of a table that an insert can give values to."""
    return StructType([one for one in schema.fields if one.name not in _GIVEN_BY_THE_LOG])


def written(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield inserted rows without the columns that the log gives values to.

    Raises:
        ConfigError: one has a value.
    """
    for batch in batches:
        names = [one for one in _GIVEN_BY_THE_LOG if one in batch.schema.names]
        for name in names:
            if batch.column(name).null_count < batch.num_rows:
                raise ConfigError(
                    f"column {name}: the log gives it; leave it out: INSERT INTO t (key, value) …"
                )
        yield batch.drop_columns(names) if names else batch
