"""Rows that may go, in order, as columns of numbers: the last stop before they become Arrow."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rookery.consumer.arrow import Numbers, Sizes, take
from rookery.consumer.block import Block
from rookery.consumer.gather import Strings, joined
from rookery.consumer.merge import Piece, Round

if TYPE_CHECKING:
    from rookery.decode.port import Array


@dataclass(slots=True)
class Rows:
    """Rows in their order; all columns are of the same length."""

    indices: Sizes
    """The partition's number in the merge."""
    offsets: Numbers
    times: Numbers
    """The record's own."""
    keys: Numbers
    strings: dict[str, Strings]
    arrays: dict[str, Array]
    event_times: Numbers | None = None
    """The times that order the rows, if they are others."""
    before: Numbers | None = None
    """The clock before each row, if it is needed."""

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def ordering(self) -> Numbers:
        """The times that order the rows."""
        return self.times if self.event_times is None else self.event_times

    def at(self, rows: Numbers | slice) -> Rows:
        """Return some of the rows."""
        taken = {name: _taken(column, rows) for name, column in self.arrays.items()}
        return Rows(
            self.indices[rows],
            self.offsets[rows],
            self.times[rows],
            self.keys[rows],
            {name: strings.at(rows) for name, strings in self.strings.items()},
            taken,
            _some(self.event_times, rows),
            _some(self.before, rows),
        )

    def sizes(self) -> Numbers:
        """Return the bytes of keys and values of each row."""
        found = [np.maximum(strings.sizes, 0) for strings in self.strings.values()]
        return np.sum(found, axis=0, dtype=np.int64) if found else np.zeros(len(self), np.int64)

    def total(self) -> int:
        """Return the bytes of keys and values of all rows."""
        return sum(
            int(np.maximum(strings.sizes, 0).sum(dtype=np.int64))
            for strings in self.strings.values()
        )


class Ready:
    """A queue of rounds; rows leave it from the front."""

    def __init__(self) -> None:
        self._rounds: deque[tuple[Round[Block], Rows]] = deque()
        self._at = 0
        self.size = 0
        """How many rows wait."""

    def add(self, round_: Round[Block]) -> None:
        """Put rows behind those that wait."""
        self._rounds.append((round_, _laid(round_)))
        self.size += round_.size

    def peek(self, max_rows: int) -> Rows:
        """Return the first rows; they stay."""
        some: list[Rows] = []
        begin, left = self._at, max_rows
        for _, rows in self._rounds:
            taken = rows.at(slice(begin, begin + left))
            some.append(taken)
            left -= len(taken)
            begin = 0
            if not left:
                break
        return _concatenated(some)

    def drop(self, count: int) -> list[Piece[Block]]:
        """Let the first rows go; return the pieces that are done with."""
        done: list[Piece[Block]] = []
        self.size -= count
        self._at += count
        while self._rounds and self._at >= self._rounds[0][0].size:
            round_, _ = self._rounds.popleft()
            self._at -= round_.size
            done += round_.pieces
        return done

    def waiting(self) -> list[Rows]:
        """Return all rows that wait."""
        found = [rows for _, rows in self._rounds]
        if found and self._at:
            found[0] = found[0].at(slice(self._at, None))
        return found

    def forget(self, index: int) -> list[Piece[Block]]:
        """Leave out a partition's rows that wait; return the pieces that are done with."""
        kept: deque[tuple[Round[Block], Rows]] = deque()
        done: list[Piece[Block]] = []
        for number, (round_, rows) in enumerate(self._rounds):
            rest = rows.at(slice(self._at, None)) if not number else rows
            rest = rest.at(np.flatnonzero(rest.indices != index))
            if len(rest):
                kept.append((Round(round_.pieces, rest.keys, None), rest))
            else:
                done += round_.pieces
        self._rounds, self._at = kept, 0
        self.size = sum(len(rows) for _, rows in kept)
        return done


def _laid(round_: Round[Block]) -> Rows:
    """Put the columns of all pieces one behind the other, then in order."""
    pieces = round_.pieces
    parts = [_part(piece) for piece in pieces]
    whole = _concatenated(parts)
    whole.indices = np.repeat(
        np.array([piece.run.index for piece in pieces], np.int32),
        [piece.end - piece.begin for piece in pieces],
    )
    whole.keys = round_.keys
    return whole if round_.order is None else whole.at(round_.order)


def _part(piece: Piece[Block]) -> Rows:
    run, block = piece.run, piece.run.block
    rows: Numbers | slice = slice(piece.begin, piece.end)
    if run.rows is not None:
        rows = run.rows[piece.begin : piece.end]
    none = np.empty(0, np.int64)
    return Rows(
        np.empty(0, np.int32),
        block.offsets[rows],
        block.times[rows],
        none,
        {name: strings.at(rows) for name, strings in block.strings.items()},
        {name: _taken(column, rows) for name, column in block.arrays.items()},
        _some(block.event_times, rows),
        _some(block.before, rows),
    )


def _concatenated(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    return Rows(
        np.concatenate([one.indices for one in parts]),
        np.concatenate([one.offsets for one in parts]),
        np.concatenate([one.times for one in parts]),
        np.concatenate([one.keys for one in parts]),
        {name: joined([one.strings[name] for one in parts]) for name in first.strings},
        {name: pa.concat_arrays([one.arrays[name] for one in parts]) for name in first.arrays},
        _all([one.event_times for one in parts]),
        _all([one.before for one in parts]),
    )


def _some(numbers: Numbers | None, rows: Numbers | slice) -> Numbers | None:
    return None if numbers is None else numbers[rows]


def _all(many: list[Numbers | None]) -> Numbers | None:
    some = [one for one in many if one is not None]
    return np.concatenate(some) if some else None


def _taken(column: pa.Array[Any], rows: Numbers | slice) -> Array:
    if isinstance(rows, slice):
        start, stop, _ = rows.indices(len(column))
        return column.slice(start, max(stop - start, 0))
    return take(column, rows)
