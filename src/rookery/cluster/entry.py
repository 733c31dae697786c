"""An entry of the cluster log: its writer, its events, and a small payload.

An entry identifies its writer by incarnation and sequence, so that a duplicate or late entry is
recognised and void. It carries the writer's digest of the state that the writer had applied, so
that diverging replicas are detected. It also names the cluster. If a log was deleted and recreated
at the same place, entries from a process that still had the old log open are void.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

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
from rookery.errors import Corrupt, ProtocolError
from rookery.wire.buffer import Buffer
from rookery.wire.codec import decode, encode, encode_bytes
from rookery.wire.message import Message, Parts, Records, field, i16, i64

MAX_EVENTS: Final = 2000
MAX_PAYLOAD_BYTES: Final = 64 * 1024
VERSION: Final = 0

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
