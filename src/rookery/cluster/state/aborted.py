"""Aborted transactions of a partition: whose records a reader of committed ones has to skip.

They are rows of one packed array, in the order of their markers: producer id, first offset, offset
of the marker, and the last stable offset right behind it. No transaction that ends later can begin
below that last one, so a search knows where to stop.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

_FIELDS: Final = 4
_LAST: Final = 2


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted: its first record's offset, and its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    stable_offset: int


def add(rows: array[int], one: AbortedTransaction) -> None:
    """Add a transaction, whose marker is the newest."""
    rows.extend(one)


def within(rows: array[int], begin: int, end: int) -> Iterator[AbortedTransaction]:
    """Find the transactions that overlap offsets from `begin` to before `end`."""
    for at in range(_first(rows, begin), len(rows), _FIELDS):
        one = AbortedTransaction(*rows[at : at + _FIELDS])
        if one.first_offset < end:
            yield one
        if one.stable_offset >= end:
            return


def after(rows: array[int], offset: int) -> array[int]:
    """Return the transactions that end at an offset or behind it, as a new array if some do not.

    Never in place: who is about to answer a fetch still needs those that go.
    """
    first = _first(rows, offset)
    return rows[first:] if first else rows


def _first(rows: array[int], offset: int) -> int:
    """Return where the first transaction begins whose marker is not below an offset."""
    low, high = 0, len(rows) // _FIELDS
    while low < high:
        middle = (low + high) // 2
        if rows[middle * _FIELDS + _LAST] < offset:
            low = middle + 1
        else:
            high = middle
    return low * _FIELDS
