"""What members of a group did with partitions, stay by stay, and whether that was right.

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
    """What was processed, batch by batch."""
    asked: list[int] = field(default_factory=list)
    """When each of these batches was asked for."""
    committed: int = 0
    """The offset that the group surely knows of."""

    @property
    def rows(self) -> int:
        """How many rows were processed."""
        return sum(len(one) for one in self.offsets)

    def faults(self) -> list[str]:
        """Tell what is wrong within the stay."""
        who = f"{self.member}, partition {self.partition}"
        found = [
            f"{who}: offset {second.start} came behind {first.stop - 1}"
            for first, second in pairwise(self.offsets)
            if second.start != first.stop
        ]
        if self.ended is not None and any(asked > self.ended for asked in self.asked):
            found.append(f"{who}: rows were handed out after it was taken")
        return found


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
        """Tell which rows before these ends nobody has processed."""
        return [
            f"partition {partition}: nothing from {at} on, of {ends[partition]}"
            for partition, many in enumerate(self._by_partition(len(ends)))
            if (at := _covered(many)) < ends[partition]
        ]

    def faults(self, partitions: int) -> list[str]:
        """Tell what members did that they must not do."""
        found = [fault for stay in self.stays for fault in stay.faults()]
        for many in self._by_partition(partitions):
            for before, after in pairwise(many):
                if before.ended is None or before.ended > after.begun:
                    found.append(f"{before} was not over when {after.member} was given it")
            found += _processed_after_commit(many)
        return found

    def _by_partition(self, partitions: int) -> list[list[Stay]]:
        found: dict[int, list[Stay]] = defaultdict(list)
        for stay in sorted(self.stays, key=lambda one: one.begun):
            found[stay.partition].append(stay)
        return [found[partition] for partition in range(partitions)]


def _covered(stays: list[Stay]) -> int:
    """Return the offset before which every row was processed."""
    at = 0
    for one in sorted((one for stay in stays for one in stay.offsets), key=lambda one: one.start):
        if one.start > at:
            break
        at = max(at, one.stop)
    return at


def _processed_after_commit(stays: list[Stay]) -> list[str]:
    """Only rows between the last commit and the end of a stay may be processed again."""
    found, committed = [], 0
    for stay in stays:
        if stay.offsets and stay.offsets[0].start < committed:
            first = stay.offsets[0].start
            found.append(f"{stay.member} began at {first}, though {committed} was committed")
        committed = max(committed, stay.committed)
    return found
