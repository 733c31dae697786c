"""Registers `spark.read.format("rookery")`: Spark finds this package by its name.

Spark imports every `pyspark_*` package whenever it looks up a source. A package that fails to
import hides all others. So this module imports only pyspark; its methods import the rest.
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

    from rookery.spark.source import SourceOptions


class DefaultSource(DataSource):
    """The format `rookery`: topics of a log, read from and written to its store directly.

    Its methods raise `ConfigError` if an option or the schema cannot be used.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        from rookery.spark.gcfreeze import settle  # noqa: PLC0415 (see above)

        # Spark creates an instance in a separate process for every `load`, and collects garbage
        # there.
        settle()

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return "rookery"

    def schema(self) -> StructType:
        """Return the columns, as in Spark's Kafka source."""
        return self._given().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        options = self._given().of_reader(schema)
        from rookery.spark.read.batchread import batch_reader  # noqa: PLC0415 (the sink needs none)

        return batch_reader(options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a stream."""
        given = self._given()
        options = given.of_reader(schema, is_stream=True)
        try:
            from rookery.spark.read.streamread import StreamReader  # noqa: PLC0415 (needs pyspark 4.2)
        except ImportError as error:
            raise given.refuse_stream(error) from error
        return StreamReader(options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        """Return the writer of a batch."""
        from rookery.spark.write.batchwrite import batch_writer  # noqa: PLC0415 (readers need none)

        return batch_writer(*self._given().of_writer(schema), overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        """Return the writer of a stream."""
        from rookery.spark.write.streamwrite import stream_writer  # noqa: PLC0415 (readers need none)

        return stream_writer(*self._given().of_writer(schema), overwrite=overwrite)

    def _given(self) -> SourceOptions:
        from rookery.spark.source import SourceOptions  # noqa: PLC0415 (see above)

        return SourceOptions(dict(self.options))
