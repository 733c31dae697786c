"""Aborted transactions of a partition, whose records a read-committed consumer skips.

They are rows of one packed array, in the order of their markers: producer id, first offset, marker
offset, and the last stable offset right after the marker. No transaction that ends later can begin
below that last stable offset, so a search knows where to stop.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

_FIELDS: Final = 4
_LAST: Final = 2


class AbortedTransaction(NamedTuple):
    """An aborted transaction: the offsets of its first record and of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int
    stable_offset: int


def add(rows: array[int], transaction: AbortedTransaction) -> None:
    """Add a transaction, whose marker must be the newest."""
    rows.extend(transaction)


def within(rows: array[int], begin: int, end: int) -> Iterator[AbortedTransaction]:
    """Find the transactions that overlap offsets from `begin` to before `end`."""
    for at in range(_first(rows, begin), len(rows), _FIELDS):
        transaction = AbortedTransaction(*rows[at : at + _FIELDS])
        if transaction.first_offset < end:
            yield transaction
        if transaction.stable_offset >= end:
            return


def after(rows: array[int], offset: int) -> array[int]:
    """Return the transactions that end at or after an offset, as a new array if any are dropped.

    Never in place: a fetch in progress still needs the dropped ones.
    """
    first = _first(rows, offset)
    return rows[first:] if first else rows


def _first(rows: array[int], offset: int) -> int:
    """Return the position of the first transaction whose marker is not below an offset."""
    low, high = 0, len(rows) // _FIELDS
    while low < high:
        middle = (low + high) // 2
        if rows[middle * _FIELDS + _LAST] < offset:
            low = middle + 1
        else:
            high = middle
    return low * _FIELDS
