"""Released rows in order, the last stage before they become Arrow."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rookery.consumer.gather import RowNumbers, unpack
from rookery.consumer.order.block import RowBlock
from rookery.consumer.order.merge import MergePiece, MergeRound
from rookery.consumer.order.table import lines
from rookery.consumer.output.arrow import Numbers, Sizes, take

if TYPE_CHECKING:
    from rookery.consumer.output.arrow import Array


@dataclass(slots=True)
class OrderedRows:
    """Rows in order; all columns have the same length."""

    lines: Numbers
    """The addresses of the rows."""
    arrays: dict[str, Array]
    event_times: Numbers | None = None
    """The times that order the rows, if they are not the record timestamps."""
    before: Numbers | None = None
    """The clock before each row, if it is needed."""
    _columns: RowNumbers | None = None

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def columns(self) -> RowNumbers:
        """The rows' numbers as columns."""
        if self._columns is None:
            self._columns = unpack(self.lines)
        return self._columns

    @property
    def indices(self) -> Sizes:
        """The partitions' numbers in the merge."""
        return self.columns.partitions

    @property
    def offsets(self) -> Numbers:
        """The rows' offsets."""
        return self.columns.offsets

    @property
    def keys(self) -> Numbers:
        """The keys that order the rows."""
        return self.columns.orders

    @property
    def ordering(self) -> Numbers:
        """The times that order the rows."""
        return self.columns.times if self.event_times is None else self.event_times

    def at(self, rows: Numbers | slice) -> OrderedRows:
        """Return the given rows."""
        return OrderedRows(
            self.lines[rows],
            {name: _take(column, rows) for name, column in self.arrays.items()},
            _some(self.event_times, rows),
            _some(self.before, rows),
            None if self._columns is None else self._columns.at(rows),
        )

    def sizes(self) -> Numbers:
        """Return the bytes of key and value of each row."""
        sizes = np.maximum(self.columns.keys.sizes, 0, dtype=np.int64)
        sizes += np.maximum(self.columns.values.sizes, 0)
        return sizes

    def total(self) -> int:
        """Return the bytes of all keys and values."""
        both = (self.columns.keys.sizes, self.columns.values.sizes)
        # A missing key or value has size -1.
        return sum(
            int(sizes.sum(dtype=np.int64)) + int(np.count_nonzero(sizes < 0)) for sizes in both
        )


class ReadyRows:
    """A queue of rounds; rows leave it from the front."""

    def __init__(self) -> None:
        self._rounds: deque[tuple[MergeRound[RowBlock], OrderedRows]] = deque()
        self._at = 0
        self.size = 0
        """The number of waiting rows."""

    def add(self, round_: MergeRound[RowBlock]) -> None:
        """Append rows to the queue."""
        self._rounds.append((round_, _lay_out(round_)))
        self.size += round_.size

    def peek(self, max_rows: int) -> OrderedRows:
        """Return the first rows without removing them."""
        some: list[OrderedRows] = []
        begin, left = self._at, max_rows
        for _, rows in self._rounds:
            taken = rows.at(slice(begin, begin + left))
            some.append(taken)
            left -= len(taken)
            begin = 0
            if not left:
                break
        return _concatenate(some)

    def drop(self, count: int) -> list[MergePiece[RowBlock]]:
        """Remove the first rows; return the pieces that are finished."""
        done: list[MergePiece[RowBlock]] = []
        self.size -= count
        self._at += count
        while self._rounds and self._at >= self._rounds[0][0].size:
            round_, _ = self._rounds.popleft()
            self._at -= round_.size
            done += round_.pieces
        return done

    def list_waiting(self) -> list[OrderedRows]:
        """Return all waiting rows."""
        waiting = [rows for _, rows in self._rounds]
        if waiting and self._at:
            waiting[0] = waiting[0].at(slice(self._at, None))
        return waiting

    def forget(self, index: int) -> list[MergePiece[RowBlock]]:
        """Remove a partition's waiting rows; return the pieces that are finished."""
        kept: deque[tuple[MergeRound[RowBlock], OrderedRows]] = deque()
        done: list[MergePiece[RowBlock]] = []
        for number, (round_, rows) in enumerate(self._rounds):
            rest = rows.at(slice(self._at, None)) if not number else rows
            rest = rest.at(np.flatnonzero(rest.indices != index))
            if len(rest):
                kept.append((MergeRound(round_.pieces, rest.keys, None), rest))
            else:
                done += round_.pieces
        self._rounds, self._at = kept, 0
        self.size = sum(len(rows) for _, rows in kept)
        return done


def _lay_out(round_: MergeRound[RowBlock]) -> OrderedRows:
    """Concatenate the rows of all pieces, then put them in order."""
    whole = _concatenate([_part(piece) for piece in round_.pieces])
    return whole if round_.order is None else whole.at(round_.order)


def _part(piece: MergePiece[RowBlock]) -> OrderedRows:
    run, block = piece.run, piece.run.block
    if run.rows is None:
        rows: Numbers | slice = slice(piece.begin, piece.end)
        where = lines(block.table, piece.begin, piece.end)
    else:
        rows = run.rows[piece.begin : piece.end]
        where = lines(block.table)[rows]
    return OrderedRows(
        where,
        {name: _take(column, rows) for name, column in block.arrays.items()},
        _some(block.event_times, rows),
        _some(block.before, rows),
    )


def _concatenate(parts: list[OrderedRows]) -> OrderedRows:
    if len(parts) == 1:
        return parts[0]
    return OrderedRows(
        np.concatenate([part.lines for part in parts]),
        {name: pa.concat_arrays([part.arrays[name] for part in parts]) for name in parts[0].arrays},
        _all([part.event_times for part in parts]),
        _all([part.before for part in parts]),
    )


def _some(numbers: Numbers | None, rows: Numbers | slice) -> Numbers | None:
    return None if numbers is None else numbers[rows]


def _all(many: list[Numbers | None]) -> Numbers | None:
    some = [column for column in many if column is not None]
    return np.concatenate(some) if some else None


def _take(column: pa.Array[Any], rows: Numbers | slice) -> Array:
    if isinstance(rows, slice):
        start, stop, _ = rows.indices(len(column))
        return column.slice(start, max(stop - start, 0))
    return take(column, rows)
