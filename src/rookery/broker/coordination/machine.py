"""What a coordinator drives: a machine takes events and returns effects.

A machine does no I/O, has no clock and no randomness: time and new member ids come with events.
When effects hold a `Persist`, the coordinator carries out the others, and those of later events,
only after that was applied: no client learns what a crash could take back. The machine may get its
next events before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from rookery.wire.message import Message


class TopicInfo(NamedTuple):
    """What a machine must know of a topic."""

    id: bytes
    partitions: int


class TopicLookup(Protocol):
    """The cluster's topics as they are when an event happens; a machine looks at no other time."""

    @property
    def mark(self) -> object:
        """Something that differs whenever a topic has come or gone; growth does not show."""

    def find(self, name: str) -> TopicInfo | None:
        """Return a topic, if it is there."""

    def names(self) -> list[str]:
        """Return the names of all topics."""


class NoTopics:
    """A cluster without topics."""

    mark = None

    def find(self, _name: str) -> TopicInfo | None:
        """Return nothing."""
        return None

    def names(self) -> list[str]:
        """Return nothing."""
        return []


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """A client's request."""

    token: Any
    """Names the request in a later `Reply`."""
    message: Message
    version: int
    client_id: str
    client_host: str
    new_member_id: str
    """A member id that is not in use, for a client that joins."""
    topics: TopicLookup = NoTopics()  # noqa: RUF009 (it has no state)
    """For machines that assign partitions themselves."""


@dataclass(frozen=True, slots=True)
class ClientGone:
    """The client of a held request has disconnected."""

    token: Any


@dataclass(frozen=True, slots=True)
class Tick:
    """The deadline of the machine has passed."""


Event = MachineRequest | ClientGone | Tick


class Reply(NamedTuple):
    """Answer a request, which may have been held."""

    token: Any
    response: Message


@dataclass(frozen=True, slots=True)
class Persist:
    """Write the new state to the cluster log."""

    whole: bytes | Callable[[], bytes]
    """The whole state, or a function that encodes it; to be called before the next event."""
    change: bytes = b""
    """What has changed since the last persist; empty if the machine does not know."""

    @property
    def body(self) -> bytes:
        """The whole state."""
        return self.whole if isinstance(self.whole, bytes) else self.whole()


Effect = Reply | Persist


class Machine(Protocol):
    """The state of one key, in memory."""

    @property
    def deadline_ms(self) -> int | None:
        """When a `Tick` is wanted; None while nothing is awaited."""

    def on(self, event: Event, now_ms: int) -> list[Effect]:
        """Take an event; return its effects, in order."""
