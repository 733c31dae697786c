"""The times during which members of a group had partitions, and whether they were right.

A stay is the time from when a partition was given to a member until it was taken from it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise


@dataclass(slots=True, eq=False)
class Stay:
    """One partition at one member."""

    member: str
    partition: int
    begun: int
    """When it was given, by the ledger's count of events."""
    ended: int | None = None
    """When it was taken, or when the member began to leave."""
    offsets: list[range] = field(default_factory=list)
    """The processed rows, batch by batch."""
    asked: list[int] = field(default_factory=list)
    """When each of these batches was asked for."""
    committed: int = 0
    """The offset that the group surely knows of."""

    @property
    def rows(self) -> int:
        """How many rows were processed."""
        return sum(len(offset) for offset in self.offsets)

    def faults(self) -> list[str]:
        """Return the faults within the stay."""
        who = f"{self.member}, partition {self.partition}"
        faults = [
            f"{who}: offset {second.start} came after {first.stop - 1}"
            for first, second in pairwise(self.offsets)
            if second.start != first.stop
        ]
        if self.ended is not None and any(asked > self.ended for asked in self.asked):
            faults.append(f"{who}: rows were handed out after it was taken")
        return faults


class Ledger:
    """All stays, in the order in which they began."""

    def __init__(self) -> None:
        self._events = count(1)
        self.stays: list[Stay] = []
        """As they began."""

    def now(self) -> int:
        """Return the number of this event; later ones have higher numbers."""
        return next(self._events)

    def begin(self, member: str, partition: int) -> Stay:
        """Write down that a member was given a partition."""
        stay = Stay(member, partition, self.now())
        self.stays.append(stay)
        return stay

    def rows(self) -> int:
        """Return how many rows were processed, some of them more than once."""
        return sum(stay.rows for stay in self.stays)

    def missing(self, ends: Sequence[int]) -> list[str]:
        """Return the rows before these ends that no member has processed."""
        return [
            f"partition {partition}: nothing from {at} on, of {ends[partition]}"
            for partition, many in enumerate(self._by_partition(len(ends)))
            if (at := _covered(many)) < ends[partition]
        ]

    def faults(self, partitions: int) -> list[str]:
        """Return what members did that they must not do."""
        faults = [fault for stay in self.stays for fault in stay.faults()]
        for many in self._by_partition(partitions):
            for before, after in pairwise(many):
                if before.ended is None or before.ended > after.begun:
                    faults.append(f"{before} was not over when {after.member} was given it")
            faults += _processed_after_commit(many)
        return faults

    def _by_partition(self, partitions: int) -> list[list[Stay]]:
        stays: dict[int, list[Stay]] = defaultdict(list)
        for stay in sorted(self.stays, key=lambda each: each.begun):
            stays[stay.partition].append(stay)
        return [stays[partition] for partition in range(partitions)]


def _covered(stays: list[Stay]) -> int:
    """Return the offset before which every row was processed."""
    at = 0
    for offset in sorted(
        (span for stay in stays for span in stay.offsets), key=lambda span: span.start
    ):
        if offset.start > at:
            break
        at = max(at, offset.stop)
    return at


def _processed_after_commit(stays: list[Stay]) -> list[str]:
    """Only rows between the last commit and the end of a stay may be processed again."""
    faults, committed = [], 0
    for stay in stays:
        if stay.offsets and stay.offsets[0].start < committed:
            first = stay.offsets[0].start
            faults.append(f"{stay.member} began at {first}, though {committed} was committed")
        committed = max(committed, stay.committed)
    return faults
