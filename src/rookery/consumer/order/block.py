"""A chunk of a partition's batches as it came, and the rows that it decodes to."""

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

# A row, and its key once more.
_ROW_BYTES: Final = ROW_BYTES + 8
# What is left in memory of a chunk that was written to a file.
_STORED_BYTES: Final = 256
# What can be had of batches that are not compressed by merely noting where it lies.
_PLAIN: Final = frozenset({"offset", "timestamp", "key", "value"})
_STRINGS: Final = {"key": KEY, "value": VALUE}


@dataclass(slots=True)
class Chunk:
    """Whole visible batches of one partition, not decoded yet; they are one piece of memory."""

    place: TopicPartition
    data: Buffer
    begin: int
    """The first offset that it is about; rows below it are not wanted."""
    end: int
    """The offset behind it, gaps and markers included."""
    until: int
    """Rows from here on are not wanted."""
    rows: int = 0
    """How many it holds at most."""
    is_packed: bool = False
    """Whether a batch of it is compressed."""
    stored: tuple[int, int] | None = None
    """Where its bytes are in a file, and how many, if they are not here."""

    @property
    def size(self) -> int:
        """The bytes that it takes, decoded: only what is compressed may take more by then."""
        if self.stored is not None:
            return _STORED_BYTES
        return len(self.data) + self.rows * _ROW_BYTES


@dataclass(slots=True)
class RowBlock:
    """Decoded rows of one partition, in the order of their offsets."""

    table: Table
    """The rows; keys and values as far as they are wanted."""
    arrays: dict[str, Array]
    """Other columns, as far as they are wanted."""
    owner: object
    """What keeps the strings in memory."""
    size: int
    """The bytes that it holds."""
    before: Numbers | None = None
    """The clock before each row, if it is needed again."""
    event_times: Numbers | None = None
    """Where the time that orders rows is not the record's own."""
    left: int = 0
    """How many rows have not been handed out."""

    @property
    def offsets(self) -> Numbers:
        """The rows' offsets."""
        return self.table[:, OFFSET]

    @property
    def ordering(self) -> Numbers:
        """The times that order the rows; NO_TIME where there is none."""
        return self.table[:, TIME] if self.event_times is None else self.event_times


def reading(columns: set[str], max_batch_bytes: int) -> ReadSettings:
    """Say what must be decoded for the columns wanted; checksums were looked at before."""
    others = sorted(columns & {"key", "value", "headers", "timestamp_type", "leader_epoch"})
    return ReadSettings(
        columns=("offset", "timestamp", *others),
        views=True,
        check_crc=False,
        max_inflated_bytes=max_batch_bytes,
    )


def decoded(chunk: Chunk, wanted: ReadSettings, partition: int) -> list[RowBlock]:
    """Decode a chunk: to one block, more if it is huge, or none.

    Args:
        chunk: the batches.
        wanted: what to decode of them.
        partition: the number that the rows shall bear.

    Raises:
        Corrupt: a batch is malformed.
        ApiError: it grows beyond its limit, or is of a kind that cannot be read.
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
            # Both have the same owners, which must not be counted twice.
            owned.update({one.address: one.size for one in strings.buffers()[2:] if one})
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
