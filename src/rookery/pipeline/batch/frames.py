"""Tables of files as DataFrames: executors read the files from any store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from rookery.tables.open import open_table
from rookery.tables.port import DataFile, TableSnapshot, TableSpec
from rookery.tables.schemas import fit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_FILES: Final = "path string, rows long, bytes long"
_MAX_TASKS: Final = 200


def frame_of(spark: SparkSession, spec: TableSpec) -> DataFrame | None:
    """Return the current rows of a table, None if there is no table."""
    snapshot = open_table(spec).snapshot()
    if snapshot is None:
        return None
    files = [(file.path, file.rows, file.bytes) for file in snapshot.files]
    frame = spark.createDataFrame(files, _FILES)
    if files:
        frame = frame.repartition(min(len(files), _MAX_TASKS))
    # The list of files is omitted, because it is in the rows.
    read = _Read(replace(snapshot, files=()))
    return frame.mapInArrow(read, spark_schema(snapshot.schema))


@dataclass(frozen=True, slots=True)
class _Read:
    snapshot: TableSnapshot

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.to_pylist():
                file = DataFile(row["path"], row["rows"], row["bytes"])
                for rows in self.snapshot.read([file]):
                    yield fit(rows, self.snapshot.schema)


def spark_schema(schema: pa.Schema) -> StructType:
    """Convert an Arrow schema to a Spark schema."""
    from pyspark.sql.pandas.types import from_arrow_schema  # noqa: PLC0415 (it takes a second)

    return from_arrow_schema(schema)


def arrow_schema(frame: DataFrame) -> pa.Schema:
    """Return the Arrow schema of a DataFrame."""
    from pyspark.sql.pandas.types import to_arrow_schema  # noqa: PLC0415

    return to_arrow_schema(frame.schema, timezone="UTC")
