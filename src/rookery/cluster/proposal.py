"""Proposed events that wait to be written, and their packing into entries."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from rookery.cluster.entry import MAX_EVENTS, MAX_PAYLOAD_BYTES
from rookery.cluster.events.logevents import BatchesCommitted
from rookery.cluster.events.securityevents import AclRow, AclsCreated
from rookery.cluster.events.sinkevents import SinkPartStaged
from rookery.cluster.state.outcome import Outcome
from rookery.errors import Conflict
from rookery.wire.buffer import Buffer
from rookery.wire.codec import encode_bytes
from rookery.wire.message import Message

MAX_EVENT_BYTES: Final = 384 * 1024
"""The limit for the events of one entry; well below the log's limit for the whole entry."""
PART_BYTES: Final = 128 * 1024
"""The limit for one part of a divided list: other proposals share the entry with it."""
_PART_EXTENTS: Final = 500
_EXTENT_BYTES: Final = 80
_EVENT_BYTES: Final = 64
_RULE_BYTES: Final = 32


class IncarnationFenced(Conflict):
    """This incarnation is no longer valid: another process replaced it, or it was too slow."""


class Proposal:
    """Events that go into the same entry, and the future that receives their outcomes.

    Raises:
        ValueError: they do not fit into an entry.
    """

    __slots__ = ("event_bytes", "events", "extents", "future", "payload", "payload_bytes")

    def __init__(self, events: Sequence[Message], payload: Sequence[Buffer] = ()) -> None:
        self.events = events
        self.payload = payload
        self.payload_bytes = sum(map(len, payload))
        self.extents = sum(map(_extents, events))
        self.event_bytes = sum(map(size_of, events))
        if self.event_bytes > MAX_EVENT_BYTES or self.payload_bytes > MAX_PAYLOAD_BYTES:
            raise ValueError(
                f"{self.event_bytes} bytes of events and {self.payload_bytes} of payload "
                "do not fit into an entry; propose them in parts"
            )
        self.future: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()

    def fail(self, error: Exception) -> None:
        """Report an error, unless the future is already done or cancelled."""
        if not self.future.done():
            self.future.set_exception(error)


def take_next(queue: deque[Proposal]) -> list[Proposal]:
    """Take proposals from the front of a queue, as many as one entry holds and at least one."""
    taken = [queue.popleft()]
    extents, payload = taken[0].extents, taken[0].payload_bytes
    size = taken[0].event_bytes
    while queue:
        extents += queue[0].extents
        payload += queue[0].payload_bytes
        size += queue[0].event_bytes
        if extents > MAX_EVENTS or payload > MAX_PAYLOAD_BYTES or size > MAX_EVENT_BYTES:
            break
        taken.append(queue.popleft())
    return taken


def merge(proposals: Sequence[Proposal]) -> tuple[list[Message], list[Buffer]]:
    """Concatenate events and payloads, adjusting positions in the payload."""
    events: list[Message] = []
    payload: list[Buffer] = []
    size = 0
    for proposal in proposals:
        if size and proposal.payload:
            for event in proposal.events:
                if isinstance(event, BatchesCommitted) and not event.object_id:
                    for extent in event.extents:
                        extent.position += size
        events += proposal.events
        payload += proposal.payload
        size += proposal.payload_bytes
    return events, payload


def divide(events: Sequence[Message]) -> Iterator[list[Message]]:
    """Divide events into parts that each fit into one entry, preserving their order.

    Raises:
        ValueError: a single event is larger than an entry.
    """
    part: list[Message] = []
    size = extents = 0
    for event in events:
        own_size, own_extents = size_of(event), _extents(event)
        if own_size > MAX_EVENT_BYTES:
            raise ValueError(
                f"a {type(event).__name__} of {own_size} bytes exceeds the {MAX_EVENT_BYTES} "
                "that an entry holds; divide its list"
            )
        if part and (size + own_size > PART_BYTES or extents + own_extents > _PART_EXTENTS):
            yield part
            part, size, extents = [], 0, 0
        part.append(event)
        size += own_size
        extents += own_extents
    if part:
        yield part


def divide_rules(rules: Sequence[AclRow]) -> Iterator[AclsCreated]:
    """Divide a list of new access rules into events that each fit into one entry."""
    part: list[AclRow] = []
    size = 0
    for rule in rules:
        # A character needs four bytes at most.
        own_size = _RULE_BYTES + 4 * sum(map(len, (rule.resource_name, rule.principal, rule.host)))
        if part and size + own_size > PART_BYTES:
            yield AclsCreated(rules=part)
            part, size = [], 0
        part.append(rule)
        size += own_size
    if part:
        yield AclsCreated(rules=part)


def size_of(event: Message) -> int:
    """Return an upper bound for the size of an event in an entry."""
    if isinstance(event, BatchesCommitted):
        return len(event.extents) * _EXTENT_BYTES + _EVENT_BYTES
    assert event.VERSIONS is not None  # noqa: S101 (events have versions)
    return len(encode_bytes(event, event.VERSIONS[-1])) + _EVENT_BYTES


def _extents(event: Message) -> int:
    """Return how much of an entry's extent limit an event uses."""
    if isinstance(event, BatchesCommitted):
        return len(event.extents)
    return len(event.runs) if isinstance(event, SinkPartStaged) else 1
