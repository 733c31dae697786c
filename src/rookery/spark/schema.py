"""The columns of a topic, as Spark's Kafka source has them, and how decoded records become them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from rookery.errors import ConfigError
from rookery.records.reading import ReadSettings

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}
_ARROW: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(
        pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
    ),
}
COLUMNS: Final = tuple(name for name in _TYPES if name != "headers")
"""Those that are read if nobody chooses."""
ALL_COLUMNS: Final = tuple(_TYPES)
# What the decoder calls otherwise.
_DECODED: Final = {"timestampType": "timestamp_type"}
# Spark takes batches of this size about as fast as larger ones, and they cost less memory.
_MAX_ROWS: Final = 65_536
_MAX_BYTES: Final = 16 * 1024 * 1024


def spark_schema(names: Iterable[str]) -> StructType:
    """Return some columns as Spark's schema."""
    return StructType([StructField(name, _TYPES[name]) for name in names])


def names_of(schema: StructType) -> tuple[str, ...]:
    """Return which columns a schema wants.

    Raises:
        ConfigError: it has a column that a topic has not, or one of another type.
    """
    for field in schema.fields:
        if field.name not in _TYPES:
            raise ConfigError(
                f"column {field.name!r}: a topic has {', '.join(_TYPES)}; decode its value for more"
            )
        if not _is_same(field.dataType, _TYPES[field.name]):
            raise ConfigError(
                f"column {field.name!r}: is {_TYPES[field.name].simpleString()}, not "
                f"{field.dataType.simpleString()}; cast it after reading"
            )
    return tuple(schema.fieldNames())


def _is_same(one: DataType, other: DataType) -> bool:
    return one.simpleString() == other.simpleString()


def reading(names: Iterable[str]) -> ReadSettings:
    """Return what the decoder shall decode for some columns."""
    wanted = tuple(_DECODED.get(name, name) for name in names)
    return ReadSettings(columns=wanted, max_rows=_MAX_ROWS, max_bytes=_MAX_BYTES)


def to_spark(batches: Iterable[pa.RecordBatch], names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yield decoded records exactly as Spark wants them: it checks the first batch alone."""
    schema = pa.schema([(name, _ARROW[name]) for name in names])
    for batch in batches:
        columns = [_column(name, batch.column(_DECODED.get(name, name))) for name in names]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(name: str, column: pa.Array[Any]) -> pa.Array[Any]:
    if isinstance(column, pa.DictionaryArray):
        return column.dictionary_decode()
    if name == "headers":
        # As Spark's Kafka source: a record without headers has none, not an empty list of them.
        is_empty = pc.equal(pc.list_value_length(column), pa.scalar(0, pa.int32()))
        column = pc.if_else(is_empty, pa.scalar(None, column.type), column)
    wanted = _ARROW[name]
    return column if column.type == wanted else column.cast(wanted)
