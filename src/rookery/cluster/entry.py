"""An entry of the cluster log: its writer, its events, a small payload, and their limits.

An entry identifies its writer by incarnation and sequence, so that a duplicate or late entry is
recognised and void. It carries the writer's digest of the state that the writer had applied, so
that diverging replicas are detected. It also names the cluster. If a log was deleted and recreated
at the same place, entries from a process that still had the old log open are void.

Events that do not fit into one entry are divided: `divide` and its relatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from rookery.cluster.events import (
    brokerevents,
    groupevents,
    importevents,
    logevents,
    pinevents,
    securityevents,
    sinkevents,
    tokenevents,
    topicevents,
    txnevents,
)
from rookery.cluster.events.groupevents import OffsetCommitted
from rookery.cluster.events.logevents import BatchesCommitted
from rookery.cluster.events.securityevents import AclFilterRow, AclRow, AclsCreated, AclsDeleted
from rookery.cluster.events.sinkevents import SinkPartStaged
from rookery.errors import Corrupt, ProtocolError
from rookery.wire.buffer import Buffer
from rookery.wire.codec import decode, encode, encode_bytes
from rookery.wire.message import Message, Parts, Records, field, i16, i64

MAX_EVENTS: Final = 2000
MAX_PAYLOAD_BYTES: Final = 64 * 1024
MAX_EVENT_BYTES: Final = 384 * 1024
"""The limit for the events of one entry; well below the log's limit for the whole entry."""
PART_BYTES: Final = 128 * 1024
"""The limit for one part of a divided list: other proposals share the entry with it."""
_PART_EXTENTS: Final = 500
_EXTENT_BYTES: Final = 80
_EVENT_BYTES: Final = 64
_RULES_BYTES: Final = MAX_EVENT_BYTES - 1024
"""The limit for the rules of one change: a request is divided only if an entry cannot hold it."""
_RULE_BYTES: Final = 16
_OFFSET_BYTES: Final = 64
VERSION: Final = 0

T = TypeVar("T")

EVENTS: Final[dict[int, type[Message]]] = {
    event.KEY: event
    for module in (
        brokerevents,
        topicevents,
        pinevents,
        logevents,
        groupevents,
        txnevents,
        sinkevents,
        importevents,
        securityevents,
        tokenevents,
    )
    for event in vars(module).values()
    if isinstance(event, type) and issubclass(event, Message) and event.KEY is not None
}
"""Every event by its key."""


class Entry(Message, versions=range(1), flexible=0):
    """The contents of one append."""

    incarnation: i64  # 0: a process that has none yet
    sequence: i64
    stamp_ms: i64  # the writer's clock
    seen: i64  # the last entry that the writer had applied
    digest: i64  # … and its digest of the state then
    events: list[EventBytes]
    payload: Records
    cluster: str = field(tag=0, default="")  # whose log the writer took it for


class EventBytes(Message):
    """One event: its key, the version of its encoding, and its bytes."""

    key: i16
    version: i16
    body: Records


class EntryAuthor(NamedTuple):
    """The writer of an entry, with its position and clock."""

    incarnation: int
    sequence: int
    stamp_ms: int
    seen: int
    digest: int
    cluster: str = ""
    """The id of the cluster, once it is known."""


def write_entry(
    writer: EntryAuthor, events: Iterable[Message], payload: Sequence[Buffer] = ()
) -> bytes:
    """Encode an entry; events use their newest version."""
    entry = Entry(
        incarnation=writer.incarnation,
        sequence=writer.sequence,
        stamp_ms=writer.stamp_ms,
        seen=writer.seen,
        digest=writer.digest,
        events=[_write_event(event) for event in events],
        payload=Parts(payload),
        cluster=writer.cluster,
    )
    return encode_bytes(entry, VERSION)


def read_entry(number: int, data: Buffer) -> Entry:
    """Decode an entry.

    Raises:
        Corrupt: the bytes are not an entry.
    """
    try:
        return decode(Entry, VERSION, data)
    except ProtocolError as error:
        raise Corrupt(f"entry {number} of the cluster log cannot be read: {error}") from error


def read_events(number: int, entry: Entry) -> list[Message]:
    """Decode an entry's events.

    Raises:
        Corrupt: an event cannot be decoded, or this program does not know its version.
    """
    return [_read_event(number, event) for event in entry.events]


def _write_event(event: Message) -> EventBytes:
    assert event.KEY is not None and event.VERSIONS is not None  # noqa: S101, PT018 (events have both)
    version = event.VERSIONS[-1]
    return EventBytes(key=event.KEY, version=version, body=Parts(encode(event, version)))


def _read_event(number: int, event: EventBytes) -> Message:
    kind = EVENTS.get(event.key)
    if kind is None or event.version not in (kind.VERSIONS or ()):
        raise Corrupt(
            f"entry {number} of the cluster log has event {event.key} in version {event.version}, "
            "which this program does not know; start a newer Rookery"
        )
    try:
        return decode(kind, event.version, event.body)  # type: ignore[arg-type] # read as a view
    except ProtocolError as error:
        raise Corrupt(f"entry {number} of the cluster log: {error}") from error


def divide(events: Sequence[Message]) -> Iterator[list[Message]]:
    """Divide events into parts that each fit into one entry, preserving their order.

    Raises:
        ValueError: a single event is larger than an entry.
    """
    part: list[Message] = []
    size = extents = 0
    for event in events:
        own_size, own_extents = size_of(event), extents_of(event)
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


def divide_list(
    items: Sequence[T], size_of_item: Callable[[T], int], limit: int = PART_BYTES
) -> Iterator[list[T]]:
    """Divide the list of an event into parts that each fit into one entry."""
    part: list[T] = []
    size = 0
    for item in items:
        own_size = size_of_item(item)
        if part and size + own_size > limit:
            yield part
            part, size = [], 0
        part.append(item)
        size += own_size
    if part:
        yield part


def divide_rules(rules: Sequence[AclRow]) -> Iterator[AclsCreated]:
    """Divide a list of new access rules into events that each fit into one entry."""
    return (AclsCreated(rules=part) for part in divide_list(rules, _rule_bytes, _RULES_BYTES))


def divide_filters(filters: Sequence[AclFilterRow]) -> Iterator[AclsDeleted]:
    """Divide a list of filters of access rules into events that each fit into one entry."""
    return (AclsDeleted(filters=part) for part in divide_list(filters, _rule_bytes, _RULES_BYTES))


def divide_offsets(offsets: Sequence[OffsetCommitted]) -> Iterator[list[OffsetCommitted]]:
    """Divide offsets into lists that each fit into one entry, with the names of their group."""
    return divide_list(offsets, lambda offset: _OFFSET_BYTES + 4 * len(offset.metadata))


def _rule_bytes(rule: AclRow | AclFilterRow) -> int:
    texts = (rule.resource_name, rule.principal, rule.host)
    return _RULE_BYTES + sum(len((text or "").encode()) for text in texts)


def fits(event: Message) -> bool:
    """Return whether an entry has room for an event."""
    return size_of(event) <= MAX_EVENT_BYTES


def size_of(event: Message) -> int:
    """Return an upper bound for the size of an event in an entry."""
    if isinstance(event, BatchesCommitted):
        return len(event.extents) * _EXTENT_BYTES + _EVENT_BYTES
    assert event.VERSIONS is not None  # noqa: S101 (events have versions)
    return len(encode_bytes(event, event.VERSIONS[-1])) + _EVENT_BYTES


def extents_of(event: Message) -> int:
    """Return how much of an entry's extent limit an event uses."""
    if isinstance(event, BatchesCommitted):
        return len(event.extents)
    return len(event.runs) if isinstance(event, SinkPartStaged) else 1
