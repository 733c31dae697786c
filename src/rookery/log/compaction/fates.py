"""Detects batches of aborted transactions, which are removed and count for no key."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from rookery.cluster.state.aborts import AbortedTransaction
from rookery.records.batches import BatchHeader


class Fates:
    """The aborted transactions of a partition in the range where all are decided."""

    def __init__(self, aborted: Iterable[AbortedTransaction] = ()) -> None:
        self._markers: set[int] = set()
        self._firsts: dict[int, list[int]] = {}
        self._lasts: dict[int, list[int]] = {}
        # In the order of their markers: those of one producer do not overlap.
        for transaction in aborted:
            self._markers.add(transaction.last_offset)
            self._firsts.setdefault(transaction.producer_id, []).append(transaction.first_offset)
            self._lasts.setdefault(transaction.producer_id, []).append(transaction.last_offset)

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch holds records of an aborted transaction."""
        firsts = self._firsts.get(header.producer_id)
        if firsts is None or not header.is_transactional or header.is_control:
            return False
        index = bisect_right(firsts, header.base_offset) - 1
        return index >= 0 and header.base_offset < self._lasts[header.producer_id][index]

    def is_listed(self, marker: BatchHeader) -> bool:
        """Whether fetches list the aborted transaction that a marker ends."""
        return marker.base_offset in self._markers


NONE: Final = Fates()
