"""The contract of the column kernel, kept by `_columns.pyx` and `_columns_twin.py` alike."""

from typing import TypeAlias

import pyarrow as pa

from rookery.records.reading import PartitionBatches, ReadSettings

Packed: TypeAlias = tuple[bytearray, int, int, int, int, int]
"""A batch whose header is yet to be written, record count, base offset, last offset delta, base
and highest timestamp."""

class Decoder:
    """Turn batches into columns.

    Rows before a fault are handed out before it is raised. After that the decoder is spent.
    """

    def __init__(self, reading: ReadSettings) -> None: ...
    def open(self, fetched: PartitionBatches) -> None:
        """Begin with other batches; those opened before must have been taken till None."""
    def take(self) -> pa.RecordBatch | None:
        """Hand out the next full RecordBatch, or None when the open batches fill no more."""
    def drain(self) -> pa.RecordBatch | None:
        """Hand out what was taken in but fills no RecordBatch, or None when that is nothing."""

class Packer:
    """Turn rows into records; the rows are those that `writing.prepare` returns."""

    def __init__(self, rows: pa.RecordBatch, timestamp_ms: int) -> None: ...
    def pack(self, start: int, base_offset: int, limit: int) -> Packed:
        """Write as many rows from `start` on as have room in `limit` bytes, at least one."""
