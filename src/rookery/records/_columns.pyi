"""The contract of the column kernel, implemented by `_columns.pyx` and `twins/columnstwin.py`."""

from typing import TypeAlias

import pyarrow as pa

from rookery.records.reading import PartitionBatches, ReadSettings

Packed: TypeAlias = tuple[bytearray, int, int, int, int, int]
"""A batch whose header is not written yet, record count, base offset, last offset delta, base and
highest timestamp."""

class Decoder:
    """Turns batches into columns.

    Rows before a fault are returned before it is raised. After that the decoder cannot be used.
    """

    def __init__(self, reading: ReadSettings) -> None: ...
    def open(self, fetched: PartitionBatches) -> None:
        """Start with other batches; `take` must have returned None for the previous ones."""
    def take(self) -> pa.RecordBatch | None:
        """Return the next full RecordBatch, or None when the open batches fill no more."""
    def drain(self) -> pa.RecordBatch | None:
        """Return the remaining rows that fill no RecordBatch, or None if there are none."""

class Packer:
    """Turns rows into records; the rows are those that `writing.prepare` returns."""

    def __init__(self, rows: pa.RecordBatch, timestamp_ms: int) -> None: ...
    def pack(self, start: int, base_offset: int, limit: int) -> Packed:
        """Write as many rows from `start` on as fit into `limit` bytes, at least one."""
