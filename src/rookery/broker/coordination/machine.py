"""The interface that a coordinator drives: a machine takes events and returns effects.

A machine does no I/O and has no clock and no randomness: time and new member ids come with events.
If the effects contain a `Persist`, the coordinator delays the other effects, and those of later
events, until it is applied. So no client sees a result that a crash could undo. The machine can
receive further events before that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from rookery.wire.message import Message


class TopicInfo(NamedTuple):
    """The topic properties that a machine needs."""

    id: bytes
    partitions: int


class TopicViewer(NamedTuple):
    """A client, as far as access rules know it."""

    principal: str = ""
    host: str = ""
    """Its address, without its port."""


class TopicLookup(Protocol):
    """The cluster's topics at the time of an event; a machine reads them only then."""

    @property
    def mark(self) -> object:
        """A value that changes whenever a topic is created or deleted, or access rules change.

        It does not change when a topic grows.
        """

    def find(self, name: str) -> TopicInfo | None:
        """Return a topic if it exists."""

    def names(self) -> list[str]:
        """Return the names of all topics."""

    def visible(self, names: Iterable[str], viewer: TopicViewer | None) -> frozenset[str] | None:
        """Return those of some names that a client may describe.

        None if it depends on the client, and the client is not known.
        """


class NoTopics:
    """A cluster without topics."""

    mark = None

    def find(self, _name: str) -> TopicInfo | None:
        """Return nothing."""
        return None

    def names(self) -> list[str]:
        """Return nothing."""
        return []

    def visible(self, names: Iterable[str], _viewer: TopicViewer | None) -> frozenset[str]:
        """Return all names: there are no access rules."""
        return frozenset(names)


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """A client's request."""

    token: Any
    """Identifies the request in a later `Reply`."""
    message: Message
    version: int
    client_id: str
    client_host: str
    new_member_id: str
    """An unused member id, for a client that joins."""
    topics: TopicLookup = NoTopics()  # noqa: RUF009 (it has no state)
    """For machines that assign partitions themselves."""
    viewer: TopicViewer = TopicViewer()  # noqa: RUF009 (a tuple)
    """Whose permissions decide which topics a regular expression matches."""


@dataclass(frozen=True, slots=True)
class ClientGone:
    """The client of a held request has disconnected."""

    token: Any


@dataclass(frozen=True, slots=True)
class Tick:
    """The deadline of the machine has passed."""


Event = MachineRequest | ClientGone | Tick


class Reply(NamedTuple):
    """Answer a request, which may have been held for some time."""

    token: Any
    response: Message


@dataclass(frozen=True, slots=True)
class Persist:
    """Write the new state to the cluster log."""

    whole: bytes | Callable[[], bytes]
    """The whole state, or a function that encodes it; it must be called before the next event."""
    change: bytes = b""
    """The change since the last persist; empty if the machine does not track it."""

    @property
    def body(self) -> bytes:
        """The whole state."""
        return self.whole if isinstance(self.whole, bytes) else self.whole()


Effect = Reply | Persist


class Machine(Protocol):
    """The in-memory state of one key."""

    @property
    def deadline_ms(self) -> int | None:
        """The time of the next `Tick`; None if no tick is needed."""

    def on(self, event: Event, now_ms: int) -> list[Effect]:
        """Process an event; return its effects, in order."""
