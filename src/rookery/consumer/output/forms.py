"""The rows of a stream in other forms than batches: tables, data frames, and Arrow's interfaces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rookery.consumer.output.batch import Batch

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped] # it has no types
    import polars as pl


class ArrowForms(ABC):
    """Converts an iterator of batches with a schema."""

    def __init__(self) -> None:
        self._side: list[pa.RecordBatch] = []

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of batches."""

    @abstractmethod
    def __iter__(self) -> Iterator[Batch]:
        """Return the batches that are not yet returned."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield plain record batches; late and rejected rows are kept for `take_side`."""
        for batch in self:
            self._side += [part for part in (batch.late, batch.rejected) if part is not None]
            yield batch.data

    def tables(self) -> Iterator[pa.Table]:
        """Yield a table for each batch."""
        for data in self.batches():
            yield pa.Table.from_batches([data])

    def to_table(self) -> pa.Table:
        """Read to the end into one table."""
        return pa.Table.from_batches(list(self.batches()), self.schema)

    def pandas(self) -> pd.DataFrame:
        """Read to the end into a pandas data frame."""
        return self.to_table().to_pandas()

    def polars(self) -> pl.DataFrame:
        """Read to the end into a polars data frame."""
        import polars  # noqa: PLC0415 (optional)

        frame = polars.from_arrow(self.to_table())
        assert isinstance(frame, polars.DataFrame)  # noqa: S101 (a table gives a frame)
        return frame

    def reader(self) -> pa.RecordBatchReader:
        """Return an Arrow reader."""
        return pa.RecordBatchReader.from_batches(self.schema, self.batches())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the stream through Arrow's C interface, for DuckDB, polars and pyarrow."""
        reader: Any = self.reader()
        return reader.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        """Export the schema through Arrow's C interface."""
        return self.schema.__arrow_c_schema__()

    def take_side(self) -> list[pa.RecordBatch]:
        """Return and clear the late and rejected rows collected while reading plain batches."""
        side, self._side = self._side, []
        return side
