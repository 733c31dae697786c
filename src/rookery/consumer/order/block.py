"""Chunks of a partition's batches as fetched, and the blocks of rows they decode to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from rookery.consumer.checkpoint import NO_TIME
from rookery.consumer.gather import locate, put
from rookery.consumer.order.table import (
    KEY,
    OFFSET,
    PARTITION,
    ROW_BYTES,
    TIME,
    VALUE,
    Table,
    empty,
    hide,
)
from rookery.consumer.output.arrow import Flags, Numbers, numbers_of, take
from rookery.model.partition import TopicPartition
from rookery.records.columns import decode
from rookery.records.kernel import Buffer
from rookery.records.reading import PartitionBatches, ReadSettings

if TYPE_CHECKING:
    from rookery.consumer.output.arrow import Array

# A row plus its sort key.
_ROW_BYTES: Final = ROW_BYTES + 8
# The memory of a chunk whose bytes were spilled to a file.
_STORED_BYTES: Final = 256
# The columns of uncompressed batches that need only their location recorded, no copy.
_PLAIN: Final = frozenset({"offset", "timestamp", "key", "value"})
_STRINGS: Final = {"key": KEY, "value": VALUE}


@dataclass(slots=True)
class Chunk:
    """Whole visible batches of one partition in one piece of memory, not yet decoded."""

    place: TopicPartition
    data: Buffer
    begin: int
    """The first offset that the chunk covers; rows below it are skipped."""
    end: int
    """The offset after the chunk, including gaps and markers."""
    until: int
    """Rows at or after this offset are skipped."""
    rows: int = 0
    """The maximum number of rows that it holds."""
    is_packed: bool = False
    """Whether any of its batches is compressed."""
    stored: tuple[int, int] | None = None
    """The position and length of its bytes in a file, if they were spilled."""

    @property
    def size(self) -> int:
        """The bytes that it takes when decoded; compressed batches may take more."""
        if self.stored is not None:
            return _STORED_BYTES
        return len(self.data) + self.rows * _ROW_BYTES


@dataclass(slots=True)
class RowBlock:
    """Decoded rows of one partition, in offset order."""

    table: Table
    """The rows; keys and values only if they are requested."""
    arrays: dict[str, Array]
    """Other requested columns."""
    owner: object
    """The object that keeps the strings in memory."""
    size: int
    """The bytes that the block holds."""
    before: Numbers | None = None
    """The partition's clock before each row, if it is needed again."""
    event_times: Numbers | None = None
    """The times that order the rows, if they are not the record timestamps."""
    left: int = 0
    """The number of rows that were not yet returned."""

    @property
    def offsets(self) -> Numbers:
        """The rows' offsets."""
        return self.table[:, OFFSET]

    @property
    def ordering(self) -> Numbers:
        """The times that order the rows; NO_TIME where there is none."""
        return self.table[:, TIME] if self.event_times is None else self.event_times


def make_settings(columns: set[str], max_batch_bytes: int) -> ReadSettings:
    """Return what to decode for the requested columns; checksums were already verified."""
    others = sorted(columns & {"key", "value", "headers", "timestamp_type", "leader_epoch"})
    return ReadSettings(
        columns=("offset", "timestamp", *others),
        views=True,
        check_crc=False,
        max_inflated_bytes=max_batch_bytes,
    )


def decode_chunk(chunk: Chunk, wanted: ReadSettings, partition: int) -> list[RowBlock]:
    """Decode a chunk into one block, into several if it is huge, or into none.

    Args:
        chunk: the batches.
        wanted: what to decode of them.
        partition: the partition number to store in the rows.

    Raises:
        Corrupt: a batch is malformed.
        ApiError: a batch exceeds its size limit when decompressed, or has an unsupported format.
    """
    if not chunk.is_packed and _PLAIN.issuperset(wanted.columns):
        table = locate(chunk.data, chunk.rows, chunk.begin, chunk.until, partition)
        if table is not None:
            return [_plain(table, chunk, wanted)] if len(table) else []
    fetched = PartitionBatches(
        chunk.place.topic, chunk.place.partition, chunk.data, chunk.begin, chunk.until
    )
    return [_block(rows, partition) for rows in decode([fetched], wanted)]


def _plain(table: Table, chunk: Chunk, wanted: ReadSettings) -> RowBlock:
    for name, column in _STRINGS.items():
        if name not in wanted.columns:
            hide(table, column)
    return RowBlock(table, {}, chunk.data, chunk.size, left=len(table))


def _block(rows: pa.RecordBatch, partition: int) -> RowBlock:
    table = empty(rows.num_rows)
    table[:, OFFSET] = numbers_of(rows.column(0))
    times = numbers_of(rows.column(1))
    table[:, TIME] = np.where(times == -1, NO_TIME, times) if rows.column(1).null_count else times
    table[:, PARTITION] = partition
    arrays: dict[str, Array] = dict(zip(rows.schema.names[2:], rows.columns[2:], strict=True))
    owned = {}
    for name, column in _STRINGS.items():
        strings = arrays.pop(name, None)
        if strings is None:
            hide(table, column)
        else:
            put(table, column, strings)
            # Keys and values share the same buffers, which must not be counted twice.
            owned.update(
                {buffer.address: buffer.size for buffer in strings.buffers()[2:] if buffer}
            )
    size = sum(owned.values()) + sum(column.nbytes for column in arrays.values())
    return RowBlock(table, arrays, rows, size + rows.num_rows * _ROW_BYTES, left=rows.num_rows)


def keep(block: RowBlock, mask: Flags) -> RowBlock:
    """Return a block with only some of its rows."""
    rows = np.flatnonzero(mask)
    return RowBlock(
        block.table[rows],
        {name: take(column, rows) for name, column in block.arrays.items()},
        block.owner,
        block.size,
        event_times=None if block.event_times is None else block.event_times[rows],
        left=len(rows),
    )
