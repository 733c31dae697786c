"""Found by Spark by its name: with it `spark.read.format("rookery")` needs no registration.

Spark imports every `pyspark_*` package whenever a source is looked up, and one that fails hides all
others. So this one imports pyspark alone, and the rest when a source is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from rookery.spark.source import RookerySource


class DefaultSource(DataSource):
    """The format `rookery`: topics of a log, read and written straight in its store."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        from rookery.spark.settling import settle  # noqa: PLC0415 (see above)

        # Spark makes one in a process of its own for every `load`, and collects garbage then.
        settle()

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "rookery"

    def schema(self) -> StructType:
        """Return the columns as Spark's Kafka source has them."""
        return self._source().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a batch."""
        return self._source().reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return what reads a stream."""
        return self._source().stream_reader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """Return what writes a batch."""
        return self._source().writer(schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        """Return what writes a stream."""
        return self._source().stream_writer(schema, overwrite=overwrite)

    def _source(self) -> RookerySource:
        from rookery.spark.source import RookerySource  # noqa: PLC0415 (see above)

        return RookerySource(dict(self.options))
