"""The facts of a history for the checks: sent records, ends of transactions, the final log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from typing import NamedTuple

from tests.faults.history.events import COMMITTED, Event, Op, Place, Source, State


class Outcome(Enum):
    """How a transaction ended, as far as its producer can know."""

    COMMITTED = auto()
    ABORTED = auto()
    UNKNOWN = auto()


class Sent(NamedTuple):
    """A sent record."""

    who: str
    txn: int
    place: Place
    value: str
    number: int
    """The number of records that its producer sent before."""
    source: Source | None


class Step(NamedTuple):
    """One record, as one member of a group read it, and what this member had read before."""

    event: Event
    place: Place
    offset: int
    value: str
    before: int | None
    """The offset before, if it was read under the same assignment."""
    assigned: float
    """When the partition was assigned to the member."""


@dataclass
class Txn:
    """A transaction."""

    values: list[str] = field(default_factory=list)
    asked: float | None = None
    """When its commit was first invoked."""
    outcome: Outcome | None = None

    def see(self, event: Event) -> None:
        """Note the outcome of a commit or an abort."""
        if event.op is Op.COMMIT and event.state is State.INVOKED:
            self.asked = event.at if self.asked is None else self.asked
            self.outcome = Outcome.UNKNOWN
        elif event.op is Op.COMMIT and event.state is State.OK:
            self.outcome = Outcome.COMMITTED
        elif event.op is Op.COMMIT and event.state is State.FAILED:
            self.outcome = Outcome.ABORTED


class Facts:
    """A history in order."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = sorted(events, key=lambda event: event.at)
        self.sent: dict[str, Sent] = {}
        """By value: no two records have the same."""
        self.acked: dict[str, int] = {}
        """The offset of each value that was acknowledged; -1 if the response did not contain it."""
        self.txns: dict[tuple[str, int], Txn] = defaultdict(Txn)
        self.log: dict[str, dict[Place, list[tuple[int, str]]]] = defaultdict(dict)
        """By isolation level: the records of each partition at the end."""
        counts: dict[str, int] = defaultdict(int)
        for event in self.events:
            if event.op is Op.SEND:
                self._see_send(event, counts)
            elif event.op in {Op.COMMIT, Op.ABORT}:
                self.txns[event.who, event.txn].see(event)
            elif event.op is Op.FINAL:
                self.log[event.isolation].setdefault(event.place, []).extend(event.records)

    @cached_property
    def committed(self) -> dict[Place, list[tuple[int, str]]]:
        """The records that a reader of committed records finds in the end."""
        return self.log[COMMITTED]

    @cached_property
    def visible(self) -> frozenset[str]:
        """All values that such a reader finds."""
        return frozenset(value for records in self.committed.values() for _, value in records)

    @cached_property
    def steps(self) -> list[Step]:
        """All records that members of groups have read."""
        return list(_steps(self.events))

    def outcome(self, value: str) -> Outcome:
        """Return the outcome of a record's transaction; without one it is committed at once."""
        sent = self.sent[value]
        if not sent.txn:
            return Outcome.COMMITTED
        # Without a request to commit there is no commit.
        return self.txns[sent.who, sent.txn].outcome or Outcome.ABORTED

    def asked(self, value: str) -> float | None:
        """Return when the commit of a record was requested; None if it needed none."""
        sent = self.sent[value]
        return self.txns[sent.who, sent.txn].asked if sent.txn else None

    def of(self, *ops: Op) -> list[Event]:
        """Return the events of some kinds, in order."""
        return [event for event in self.events if event.op in ops]

    def without_answer(self, op: Op) -> list[Event]:
        """Return the events without an answer, which may have happened."""
        events = self.of(op)
        ended = {(event.who, event.began) for event in events if event.state is not State.INVOKED}
        return [
            event
            for event in events
            if event.state is State.UNKNOWN
            or (event.state is State.INVOKED and (event.who, event.at) not in ended)
        ]

    def _see_send(self, event: Event, counts: dict[str, int]) -> None:
        if event.state is State.INVOKED:
            self.sent[event.value] = Sent(
                event.who, event.txn, event.place, event.value, counts[event.who], event.source
            )
            counts[event.who] += 1
            if event.txn:
                self.txns[event.who, event.txn].values.append(event.value)
        elif event.state is State.OK:
            self.acked[event.value] = event.offset


def _steps(events: Iterable[Event]) -> Iterator[Step]:
    before: dict[tuple[str, Place], int] = {}
    given: dict[tuple[str, Place], float] = {}
    for event in events:
        if event.op in {Op.ASSIGNED, Op.REVOKED}:
            for place in event.offsets:
                before.pop((event.who, place), None)
                given[event.who, place] = event.at
        elif event.op is Op.READ:
            mine = (event.who, event.place)
            for offset, value in event.records:
                known = before.get(mine)
                yield Step(event, event.place, offset, value, known, given.get(mine, 0.0))
                before[mine] = offset
