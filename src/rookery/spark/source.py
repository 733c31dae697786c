"""The format `rookery` of Spark: what makes its readers and writers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from rookery.errors import ConfigError
from rookery.spark import schema as columns
from rookery.spark import sqltable
from rookery.spark.options import ReadOptions, limits_in
from rookery.spark.rawoptions import check_no_secrets

if TYPE_CHECKING:
    from rookery.spark.batchread import BatchReader


class RookerySource:
    """Topics of a log, by the options of one DataFrame, or of a table in Spark's catalog."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """Take options as Spark passes them.

        Raises:
            ConfigError: they have a secret in them, or are of a table without any.
        """
        self._table = sqltable.declared(options)
        self._options = options if self._table is None else self._table
        check_no_secrets(self._options)

    def schema(self) -> StructType:
        """Return the columns that are read: those of Spark's Kafka source, or those asked for.

        Raises:
            ConfigError: an option cannot be used.
        """
        found = columns.spark_schema(ReadOptions.columns_of(self._options))
        return found if self._table is None else sqltable.noted(found, self._table)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a batch; a schema given by the user chooses columns.

        Raises:
            ConfigError: an option or the schema cannot be used.
        """
        from rookery.spark import batchread  # noqa: PLC0415 (the sink does not need it)

        options = self._chosen(schema)
        made: type[BatchReader] = batchread.BatchReader
        if options.is_pushed:
            made = batchread.FilteringReader
        return made(options)

    def stream_reader(self, schema: StructType) -> DataSourceStreamReader:
        """Return what reads a stream.

        Raises:
            ConfigError: an option or the schema cannot be used.
        """
        options = self._chosen(schema, is_stream=True)
        try:
            from rookery.spark.streamread import StreamReader  # noqa: PLC0415 (see below)
        except ImportError as error:
            given = limits_in(self._options)
            what = f"{', '.join(given)}: limits of batches" if given else "streams"
            raise ConfigError(f"{what} need pyspark 4.2 or later: {error}") from error
        return StreamReader(options)

    def writer(self, schema: StructType, *, overwrite: bool) -> DataSourceWriter:
        """Return what writes a batch."""
        from rookery.spark.batchwrite import batch_writer  # noqa: PLC0415 (readers do not need it)

        return batch_writer(*self._written(schema), overwrite=overwrite)

    def stream_writer(self, schema: StructType, *, overwrite: bool) -> DataSourceStreamWriter:
        """Return what writes a stream."""
        from rookery.spark.streamwrite import stream_writer  # noqa: PLC0415

        return stream_writer(*self._written(schema), overwrite=overwrite)

    def _chosen(self, schema: StructType, *, is_stream: bool = False) -> ReadOptions:
        given = sqltable.together(sqltable.told(schema), self._options)
        options = ReadOptions.of(given, is_stream=is_stream)
        return options.with_columns(columns.names_of(schema))

    def _written(self, schema: StructType) -> tuple[dict[str, str], StructType]:
        """Return options and columns for a writer."""
        given = sqltable.together(sqltable.told(schema), self._options)
        if given == dict(self._options):
            return given, schema
        return sqltable.for_writing(given), sqltable.writable(schema)
