"""A chunk of a partition's batches as it came, and the rows that it decodes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from rookery.consumer.arrow import Flags, Numbers, numbers_of, take
from rookery.consumer.checkpoint import NO_TIME
from rookery.consumer.gather import Located, Strings, locate, strings_of
from rookery.model.partition import TopicPartition
from rookery.records.columns import decode
from rookery.records.kernel import Buffer
from rookery.records.reading import Fetched, Reading

if TYPE_CHECKING:
    from rookery.decode.port import Array

# Offset, time, key and clock of each row; and its address, size and view of each byte string.
_ROW_BYTES: Final = 32
_STRING_BYTES: Final = 28
# What is left in memory of a chunk that was written to a file.
_STORED_BYTES: Final = 256
# What can be had of batches that are not compressed by merely noting where it lies.
_PLAIN: Final = frozenset({"offset", "timestamp", "key", "value"})


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
        return len(self.data) + self.rows * (_ROW_BYTES + 2 * _STRING_BYTES)


@dataclass(slots=True)
class Block:
    """Decoded rows of one partition, in the order of their offsets."""

    offsets: Numbers
    times: Numbers
    """In milliseconds; NO_TIME where there is none."""
    strings: dict[str, Strings]
    """Keys and values, as far as they are wanted."""
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
    def ordering(self) -> Numbers:
        """The times that order the rows."""
        return self.times if self.event_times is None else self.event_times


def reading(columns: set[str], max_batch_bytes: int) -> Reading:
    """Say what must be decoded for the columns wanted; checksums were looked at before."""
    others = sorted(columns & {"key", "value", "headers", "timestamp_type", "leader_epoch"})
    return Reading(
        columns=("offset", "timestamp", *others),
        views=True,
        check_crc=False,
        max_inflated_bytes=max_batch_bytes,
    )


def decoded(chunk: Chunk, wanted: Reading) -> list[Block]:
    """Decode a chunk: to one block, more if it is huge, or none.

    Raises:
        Corrupt: a batch is malformed.
        ApiError: it grows beyond its limit, or is of a kind that cannot be read.
    """
    if not chunk.is_packed and set(wanted.columns) <= _PLAIN:
        found = locate(chunk.data, chunk.rows, chunk.begin, chunk.until)
        if found is not None:
            return [_plain(found, chunk, wanted)] if len(found.offsets) else []
    fetched = Fetched(
        chunk.place.topic, chunk.place.partition, chunk.data, chunk.begin, chunk.until
    )
    return [_block(rows) for rows in decode([fetched], wanted)]


def _plain(found: Located, chunk: Chunk, wanted: Reading) -> Block:
    both = {"key": found.keys, "value": found.values}
    strings = {name: one for name, one in both.items() if name in wanted.columns}
    size = len(chunk.data) + chunk.rows * (_ROW_BYTES + _STRING_BYTES * len(both))
    count = len(found.offsets)
    return Block(found.offsets, found.times, strings, {}, chunk.data, size, left=count)


def _block(rows: pa.RecordBatch) -> Block:
    offsets = numbers_of(rows.column(0))
    times = numbers_of(rows.column(1))
    if rows.column(1).null_count:
        times = np.where(times == -1, NO_TIME, times)
    strings: dict[str, Strings] = {}
    arrays: dict[str, Array] = {}
    owned = {}
    for name, column in zip(rows.schema.names[2:], rows.columns[2:], strict=True):
        if name in {"key", "value"}:
            strings[name] = strings_of(column)
            # Both have the same owners, which must not be counted twice.
            owned.update({one.address: one.size for one in column.buffers()[2:] if one})
        else:
            arrays[name] = column
    size = sum(owned.values()) + sum(column.nbytes for column in arrays.values())
    size += rows.num_rows * (_ROW_BYTES + _STRING_BYTES * len(strings))
    return Block(offsets, times, strings, arrays, rows, size, left=rows.num_rows)


def keep(block: Block, mask: Flags) -> Block:
    """Return a block with only some of its rows."""
    rows = np.flatnonzero(mask)
    return Block(
        block.offsets[rows],
        block.times[rows],
        {name: strings.at(rows) for name, strings in block.strings.items()},
        {name: take(column, rows) for name, column in block.arrays.items()},
        block.owner,
        block.size,
        event_times=None if block.event_times is None else block.event_times[rows],
        left=len(rows),
    )
