"""The columns of a topic, as in Spark's Kafka source, and the conversion of decoded records."""

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
"""The columns that are read by default."""
ALL_COLUMNS: Final = tuple(_TYPES)
# Columns that have another name in the decoder.
_DECODED: Final = {"timestampType": "timestamp_type"}
# Spark processes batches of this size about as fast as larger ones, and they need less memory.
_MAX_ROWS: Final = 65_536
_MAX_BYTES: Final = 16 * 1024 * 1024


def spark_schema(names: Iterable[str]) -> StructType:
    """Return the Spark schema of the named columns."""
    return StructType([StructField(name, _TYPES[name]) for name in names])


def names_of(schema: StructType) -> tuple[str, ...]:
    """Return the names of the columns in a schema.

    Raises:
        ConfigError: a topic has no such column, or the column has another type.
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


def _is_same(left: DataType, right: DataType) -> bool:
    return left.simpleString() == right.simpleString()


def choose_settings(names: Iterable[str]) -> ReadSettings:
    """Return the decoder settings for the named columns."""
    wanted = tuple(_DECODED.get(name, name) for name in names)
    return ReadSettings(columns=wanted, max_rows=_MAX_ROWS, max_bytes=_MAX_BYTES)


def to_spark(batches: Iterable[pa.RecordBatch], names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Yield decoded records in exactly the expected schema: Spark checks only the first batch."""
    schema = pa.schema([(name, _ARROW[name]) for name in names])
    for batch in batches:
        columns = [_column(name, batch.column(_DECODED.get(name, name))) for name in names]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(name: str, column: pa.Array[Any]) -> pa.Array[Any]:
    if isinstance(column, pa.DictionaryArray):
        return column.dictionary_decode()
    if name == "headers":
        # As in Spark's Kafka source, a record without headers has null, not an empty list.
        is_empty = pc.equal(pc.list_value_length(column), pa.scalar(0, pa.int32()))
        column = pc.if_else(is_empty, pa.scalar(None, column.type), column)
    wanted = _ARROW[name]
    return column if column.type == wanted else column.cast(wanted)
