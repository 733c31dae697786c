"""Marks rows of an Iceberg table as deleted, as engines do that merge on read.

pyiceberg reads such marks and does not write them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestWriter,
    ManifestWriterV2,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record

_FIELDS: list[pa.Field[Any]] = [
    pa.field("file_path", pa.string(), metadata={"PARQUET:field_id": "2147483546"}),
    pa.field("pos", pa.int64(), metadata={"PARQUET:field_id": "2147483545"}),
]
_COLUMNS = pa.schema(_FIELDS)


class _Writer(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _Marks(_FastAppendFiles):
    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        schema = self._transaction.table_metadata.schema()
        return _Writer(
            spec, schema, self.new_manifest_output(), self._snapshot_id, self._compression
        )


def mark_deleted(table: Table, address: str, partition: Record, rows: Sequence[int]) -> None:
    """Mark rows of a data file as deleted, by their places in it."""
    target = f"{table.location()}/data/marks-{len(table.metadata.snapshots)}.parquet"
    marks = [{"file_path": address, "pos": row} for row in rows]
    pq.write_table(pa.Table.from_pylist(marks, _COLUMNS), target.removeprefix("file://"))
    made: Any = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=target,
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=len(rows),
        file_size_in_bytes=len(table.io.new_input(target)),
        spec_id=table.spec().spec_id,
    )
    with (
        Transaction(table) as transaction,
        _Marks(Operation.APPEND, transaction, table.io) as update,
    ):
        update.append_data_file(made)
