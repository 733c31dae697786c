"""Faults of a log, and their remedies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple


class FaultKind(StrEnum):
    """The kind of a fault."""

    MISSING = "missing"
    """The cluster log references it, but it does not exist."""
    SHORT = "short"
    """It ends before the bytes that the cluster log references."""
    CORRUPT = "corrupt"
    """Its bytes are not those that were written."""
    OFFSETS = "offsets"
    """Rows overlap, leave a hole, or contradict other parts of the state."""
    ORPHANED = "orphaned"
    """It exists, but nothing references it."""
    STRAY = "stray"
    """It exists, but its name is not one that Rookery uses."""
    SNAPSHOT = "snapshot"
    """A snapshot cannot be read."""
    LOG = "log"
    """Entries of the cluster log are missing or cannot be read."""
    LOST = "lost"
    """Records that are known to be lost; readers skip their offsets."""
    IN_FLIGHT = "in flight"
    """A live process may be about to commit it."""
    RECORD = "told"  # the value is part of the output for scripts
    """It holds no batches; it only records the offsets of batches in other objects."""


NOTES: Final = frozenset((FaultKind.LOST, FaultKind.IN_FLIGHT, FaultKind.RECORD))
"""Findings that are reported but are not faults."""

_REMEDIES: Final = {
    FaultKind.MISSING: "restore it from a copy; without one, these records are lost",
    FaultKind.SHORT: "restore it from a copy; without one, what it lacks is lost",
    FaultKind.CORRUPT: "restore it from a copy; until then, readers get an error at these offsets",
    FaultKind.OFFSETS: "stop the brokers, keep a copy of everything, and report it as a bug",
    FaultKind.ORPHANED: "the caretaker deletes it; nothing needs to be done while a broker runs",
    FaultKind.STRAY: "another program created it; remove it if it is not needed",
    FaultKind.SNAPSHOT: "delete it; brokers use the one before it, and write a new one",
    FaultKind.LOG: (
        "stop the brokers and restore the cluster log, or empty it and run `rookery recover`"
    ),
    FaultKind.LOST: "nothing; the loss was reported when it happened",
    FaultKind.IN_FLIGHT: "nothing; check again later",
    FaultKind.RECORD: "nothing; the caretaker deletes records that other objects repeat",
}


class FaultRange(NamedTuple):
    """The offsets of a partition that a fault affects."""

    topic: str
    partition: int
    base_offset: int
    end_offset: int
    """One more than the last."""


@dataclass(frozen=True, slots=True)
class LogFault:
    """One fault."""

    kind: FaultKind
    key: str
    """The object, file or entry."""
    text: str
    where: FaultRange | None = None
    remedy: str = ""

    @property
    def is_note(self) -> bool:
        """Whether it is reported without being a fault."""
        return self.kind in NOTES

    @property
    def advice(self) -> str:
        """The remedy."""
        return self.remedy or _REMEDIES[self.kind]

    def as_json(self) -> dict[str, object]:
        """Return it for scripts."""
        document: dict[str, object] = {"kind": str(self.kind), "key": self.key, "text": self.text}
        if self.where is not None:
            document |= self.where._asdict()
        return {**document, "remedy": self.advice}


def join_adjacent(faults: list[LogFault]) -> Iterator[LogFault]:
    """Join faults that differ only in their offsets, where these are consecutive."""
    last: LogFault | None = None
    for fault in faults:
        if last is not None and _follows(last, fault) and last.where and fault.where:
            end = fault.where.end_offset
            last = replace(last, where=last.where._replace(end_offset=end))
            continue
        if last is not None:
            yield last
        last = fault
    if last is not None:
        yield last


def _follows(fault: LogFault, other: LogFault) -> bool:
    if fault.where is None or other.where is None:
        return False
    return (
        (fault.kind, fault.key, fault.text) == (other.kind, other.key, other.text)
        and fault.where[:2] == other.where[:2]
        and fault.where.end_offset == other.where.base_offset
    )
