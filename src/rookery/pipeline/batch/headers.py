"""Avoids slow transfers of records without headers from Spark's Java process to Python.

Such records have null instead of a list of headers. Spark computes the size of a batch after every
row. Arrow then scans all nulls since the last list, so the time grows with the square of the rows
(pyspark 4.3: ten times as long for batches of 10,000). Empty lists cost nothing, so they are sent
instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME: Final = "headers"


def fill_headers(rows: DataFrame) -> DataFrame:
    """Return rows with empty lists instead of null headers."""
    from pyspark.sql import functions as sql  # noqa: PLC0415 (it takes a second)

    empty = sql.array().cast(rows.schema[_NAME].dataType)
    return rows.withColumn(_NAME, sql.coalesce(_NAME, empty))


def empty_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows with null headers instead of empty lists."""
    at = batch.schema.get_field_index(_NAME)
    lists = batch.column(at)
    is_empty = pc.equal(pc.list_value_length(lists), pa.scalar(0, pa.int32()))
    if not pc.any(is_empty).as_py():
        return batch
    if not len(pc.list_flatten(lists)):  # true for most records
        nulled = pa.nulls(len(lists), lists.type)
    else:
        is_empty = pc.fill_null(is_empty, pa.scalar(value=False))
        nulled = pc.if_else(is_empty, pa.scalar(None, lists.type), lists)
    return batch.set_column(at, batch.schema.field(at), nulled)
