"""The actions of a worker: one line of JSON each, in a file that only grows.

    {"at": 7.31, "who": "txn-1", "op": "commit", "state": "ok", "began": 7.02, "txn": 12}

Times are seconds of the machine's steady clock, so those of all workers can be compared. An action
with a duration is written twice: when it is invoked, and when its end is known.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any, Final, NamedTuple, TextIO


class Op(StrEnum):
    """The kind of an action."""

    SEND = "send"
    """A record was sent."""
    COMMIT = "commit"
    """A transaction was to be committed."""
    ABORT = "abort"
    TXN_OFFSETS = "txn_offsets"
    """A group's offsets were made part of a transaction."""
    READ = "read"
    """Records of one partition were read."""
    ASSIGNED = "assigned"
    """A group's member was given partitions."""
    REVOKED = "revoked"
    """Partitions were revoked from a group's member."""
    OFFSETS = "offsets"
    """A group's member committed offsets."""
    SEEN_OFFSETS = "seen_offsets"
    """A request for a group's offsets."""
    SEEN_ENDS = "seen_ends"
    """A request for the ends of partitions."""
    FINAL = "final"
    """Records of a partition were read after the end, from its beginning on."""
    FAULT = "fault"
    """A fault from `began` to `at`."""
    RESTART = "restart"
    """A worker has replaced a client that failed."""


class State(StrEnum):
    """The result of an action."""

    INVOKED = "invoked"
    OK = "ok"
    FAILED = "failed"
    """It certainly did not happen."""
    UNKNOWN = "unknown"
    """It may have happened, and may even happen later."""


COMMITTED: Final = "read_committed"
UNCOMMITTED: Final = "read_uncommitted"


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


NOWHERE: Final = Place("", -1)


class Source(NamedTuple):
    """The original of a copied record."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a history; fields that its operation does not use have their defaults."""

    at: float
    who: str
    op: Op
    state: State = State.OK
    began: float = 0.0
    txn: int = 0
    """The worker's own number of the transaction; 0 for none."""
    place: Place = NOWHERE
    offset: int = -1
    value: str = ""
    source: Source | None = None
    group: str = ""
    isolation: str = ""
    records: tuple[tuple[int, str], ...] = ()
    """Offset and value of each record."""
    offsets: Mapping[Place, int] = field(default_factory=dict)
    """The offset of each partition; -1 for none."""
    text: str = ""

    def line(self) -> str:
        """Return the event as a line of JSON."""
        known = {item.name: getattr(self, item.name) for item in fields(self)}
        body = {name: value for name, value in known.items() if value != _DEFAULTS[name]}
        if self.offsets:
            body["offsets"] = [[*place, offset] for place, offset in self.offsets.items()]
        return json.dumps(body, separators=(",", ":")) + "\n"


_DEFAULTS: Final = {
    item.name: getattr(Event(-1.0, "", Op.SEND), item.name) for item in fields(Event)
} | {"who": None, "op": None}


def parse(line: str) -> Event:
    """Return the event of a line."""
    body: dict[str, Any] = json.loads(line)
    body["op"] = Op(body["op"])
    body["state"] = State(body.get("state", State.OK))
    if "place" in body:
        body["place"] = Place(*body["place"])
    if "source" in body:
        body["source"] = Source(*body["source"])
    if "records" in body:
        body["records"] = tuple((offset, value) for offset, value in body["records"])
    if "offsets" in body:
        body["offsets"] = {Place(topic, number): at for topic, number, at in body["offsets"]}
    return Event(**body)


def read(path: Path) -> list[Event]:
    """Return all events of a file."""
    with path.open() as lines:
        return [parse(line) for line in lines]


def write(path: Path, events: Iterable[Event]) -> None:
    """Replace a file."""
    path.write_text("".join(event.line() for event in events))


class History:
    """The history to which all workers write."""

    def __init__(self, file: TextIO, zero: float | None = None) -> None:
        """Begin.

        Args:
            file: is given lines.
            zero: the moment that times count from, of the machine's steady clock; by default now.
        """
        self.zero = monotonic() if zero is None else zero
        self._file = file
        self._lock = Lock()

    def now(self) -> float:
        """Return the seconds since its start."""
        return round(monotonic() - self.zero, 4)

    def add(self, who: str, op: Op, state: State = State.OK, **more: Any) -> float:
        """Write an event of this moment; return the moment."""
        event = Event(self.now(), who, op, state, **more)
        self.relay(event.line())
        return event.at

    def relay(self, line: str) -> None:
        """Write a line from another process."""
        with self._lock:
            # Late events, after the end, are dropped.
            if not self._file.closed:
                self._file.write(line)
                self._file.flush()
