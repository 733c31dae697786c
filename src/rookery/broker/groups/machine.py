"""What a group protocol is to the coordinator that drives it: events in, effects out.

A machine does no I/O, has no clock and no randomness: time and new member ids come with events.
When effects hold a `Persist`, the coordinator carries out the others, and those of later events,
only after that was applied: no client learns what a crash could take back. The machine may get its
next events before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from rookery.errors import ErrorCode
from rookery.wire.message import Message


class TopicInfo(NamedTuple):
    """What a group must know of a topic."""

    id: bytes
    partitions: int


class Topics(Protocol):
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
class Request:
    """A client's request for the group."""

    token: Any
    """Names the request in a later `Reply`."""
    message: Message
    version: int
    client_id: str
    client_host: str
    new_member_id: str
    """A member id that nobody has, should one be wanted."""
    topics: Topics = NoTopics()  # noqa: RUF009 (it has no state)
    """For machines that assign partitions themselves."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The client of a held request is gone: nobody waits for its answer."""

    token: Any


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: something that was to happen by now may be due."""


Event = Request | Gone | Tick


class Reply(NamedTuple):
    """Answer a request, now or held until now."""

    token: Any
    response: Message


@dataclass(frozen=True, slots=True)
class Persist:
    """Have the group's new state agreed upon."""

    whole: bytes | Callable[[], bytes]
    """The state, or what writes it down; to be called before the next event."""
    change: bytes = b""
    """What has changed since the last persist; empty if the machine does not know."""

    @property
    def body(self) -> bytes:
        """The whole state."""
        return self.whole if isinstance(self.whole, bytes) else self.whole()


Effect = Reply | Persist


class Machine(Protocol):
    """One group."""

    @property
    def state_name(self) -> str:
        """The group's state in Kafka's words, such as Empty or PreparingRebalance."""

    @property
    def deadline_ms(self) -> int | None:
        """When a `Tick` is wanted; None while nothing is awaited."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""

    def on(self, event: Event, now_ms: int) -> list[Effect]:
        """Take an event; return what is to be done, in this order."""

    def check_commit(
        self,
        member_id: str,
        generation: int,
        instance_id: str | None,
        *,
        is_transactional: bool = False,
        version: int = 9,
    ) -> ErrorCode:
        """Say whether a member may commit offsets; -1 and "" are a client without membership.

        The version is that of OffsetCommit, which members of new groups must be able to read.
        """

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        """Say whether a member may see offsets; None and -1 are a client without membership."""

    def subscribes(self, topic: str) -> bool:
        """Whether a member reads the topic: its offsets are in use."""
