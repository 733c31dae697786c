"""Files of a partitioned Iceberg table: each has the rows of one partition.

The pipeline creates tables without partitions, but any engine can add a partition field later.
Staged files then hold rows of several partitions. They are split at commit time by the table's
current spec, in tasks that can run on any host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec, partition_record_value
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from rookery.clock import SystemRandom
from rookery.tables import parquetfiles
from rookery.tables.folder import TableFolder
from rookery.tables.port import DataFile, Run


class PartitionFile(NamedTuple):
    """A file, and the partition values of its rows."""

    file: DataFile
    values: tuple[Any, ...]


@dataclass(slots=True)
class FilePartitioner:
    """Splits files for one commit; retries reuse the files of earlier attempts."""

    folder: TableFolder
    run: Run
    _parts: dict[tuple[int, str], list[PartitionFile]] = field(default_factory=dict)

    def parts(
        self, metadata: TableMetadata, columns: pa.Schema, files: Sequence[DataFile]
    ) -> list[PartitionFile]:
        """Return files that hold the same rows, each of one partition.

        Args:
            metadata: the table, with its current spec.
            columns: the table's columns, in a form that can be resolved in these files.
            files: staged files.
        """
        spec, schema = metadata.spec(), metadata.schema()
        new = [file for file in files if (spec.spec_id, file.path) not in self._parts]
        tasks = [_Split(self.folder, file, columns, schema, spec) for file in new]
        for file, parts in zip(new, self.run(tasks), strict=True):
            self._parts[spec.spec_id, file.path] = parts
        return [part for file in files for part in self._parts[spec.spec_id, file.path]]


def data_file(
    io: FileIO, metadata: TableMetadata, address: str, part: PartitionFile
) -> IcebergFile:
    """Return the manifest entry for a file of one partition."""
    source, schema = io.new_input(address), metadata.schema()
    with source.open() as stream:
        footer = pq.read_metadata(cast("IO[bytes]", stream))
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=compute_statistics_plan(schema, metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=address,
        file_format=FileFormat.PARQUET,
        partition=Record(*part.values),
        file_size_in_bytes=len(source),
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


@dataclass(frozen=True, slots=True)
class _Split:
    folder: TableFolder
    file: DataFile
    columns: pa.Schema
    schema: Schema
    spec: PartitionSpec

    @property
    def bytes(self) -> int:
        return self.file.bytes

    def __call__(self) -> list[PartitionFile]:
        data = self.folder.read(self.file.path)
        sources = parquetfiles.columns(self.folder, self.file, data, self._sources())
        values, numbers = _group(sources, self.schema, self.spec)
        if len(values) == 1:
            return [PartitionFile(self.file, values[0])]
        rows = parquetfiles.decode_rows(self.folder, self.file, data, self.columns)
        attempt = f"partition-{SystemRandom().token(8).hex()}"
        staged = parquetfiles.stage_parted(
            self.folder, _divide(rows, numbers), self.columns, attempt
        )
        return [
            PartitionFile(file, values[number])
            for number, files in staged.items()
            for file in files
        ]

    def _sources(self) -> pa.Schema:
        """Return the source columns of the partition fields; nested ones as a whole."""
        roots = {
            _path(self.schema, partition_field, self.columns)[0]
            for partition_field in self.spec.fields
        }
        return pa.schema([column for column in self.columns if column.name in roots])


def _group(rows: pa.Table, schema: Schema, spec: PartitionSpec) -> tuple[list[Any], Any]:
    """Return the partitions of rows, and the partition number of each row."""
    known: list[list[Any]] = []
    codes = np.zeros((rows.num_rows, len(spec.fields)), dtype=np.int64)
    for at, partition_field in enumerate(spec.fields):
        path = _path(schema, partition_field, rows.schema)
        column: Any = rows[path[0]]
        for name in path[1:]:
            column = pc.struct_field(column, name)
        values, codes[:, at] = _transform(column, schema, partition_field)
        known.append(values)
    unique, numbers = np.unique(codes, axis=0, return_inverse=True)
    partitions = [tuple(known[at][code] for at, code in enumerate(row)) for row in unique]
    return partitions, numbers.reshape(-1)


def _transform(
    column: Any, schema: Schema, partition_field: PartitionField
) -> tuple[list[Any], Any]:
    """Return the distinct values of a partition field, and the index of each row's value."""
    kind: Any = schema.find_field(partition_field.source_id).field_type
    transform = partition_field.transform.transform(kind)
    encoded = pc.dictionary_encode(column, null_encoding="encode").combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):  # a column without rows
        return [], np.zeros(0, dtype=np.int64)
    numbers: dict[Any, int] = {}
    codes = np.array(
        [
            numbers.setdefault(
                None
                if value is None
                else transform(partition_record_value(partition_field, value, schema)),
                len(numbers),
            )
            for value in encoded.dictionary.to_pylist()
        ],
        dtype=np.int64,
    )
    return list(numbers), codes[encoded.indices.to_numpy(zero_copy_only=False)]


def _path(schema: Schema, partition_field: PartitionField, columns: pa.Schema) -> list[str]:
    """Return the path to the source of a partition field: a column, and fields within it."""
    name = schema.find_column_name(partition_field.source_id) or ""
    return [name] if name in columns.names else name.split(".")


def _divide(
    batches: Iterator[pa.RecordBatch], numbers: Any
) -> Iterator[tuple[int, pa.RecordBatch]]:
    at = 0
    for batch in batches:
        own = numbers[at : at + batch.num_rows]
        at += batch.num_rows
        for number in np.unique(own):
            yield int(number), batch.filter(pa.array(own == number))
