"""An entry of the cluster log: who wrote it, what happened, and small data that rides along.

An entry knows its writer (incarnation and sequence), so that one which is appended twice, or too
late, can be told and made void; and it carries the writer's digest of the state that it had
applied, so that replicas which differ find out. It names the cluster: what a process wrote that
had another one's log open, which was deleted and made anew at the same place, is void.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rookery.cluster.events import brokers, groups, imports, log, pins, sinks, topics, txns
from rookery.errors import Corrupt, ProtocolError
from rookery.wire.buffer import Buffer
from rookery.wire.codec import decode, encode, encode_bytes
from rookery.wire.message import Message, Parts, Records, field, i16, i64

MAX_EVENTS: Final = 2000
MAX_PAYLOAD_BYTES: Final = 64 * 1024
VERSION: Final = 0

EVENTS: Final[dict[int, type[Message]]] = {
    event.KEY: event
    for module in (brokers, topics, pins, log, groups, txns, sinks, imports)
    for event in vars(module).values()
    if isinstance(event, type) and issubclass(event, Message) and event.KEY is not None
}
"""Every event by its key."""


class Entry(Message, versions=range(1), flexible=0):
    """What one append brings."""

    incarnation: i64  # 0: a process that has none yet
    sequence: i64
    stamp_ms: i64  # the writer's clock
    seen: i64  # the last entry that the writer had applied
    digest: i64  # … and its digest of the state then
    events: list[EventBytes]
    payload: Records
    cluster: str = field(tag=0, default="")  # whose log the writer took it for


class EventBytes(Message):
    """One event: its key, the version it is written in, and its bytes."""

    key: i16
    version: i16
    body: Records


class EntryAuthor(NamedTuple):
    """Who appends an entry, and when."""

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
    """Write an entry; events are written in their newest version."""
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
    """Read an entry.

    Raises:
        Corrupt: the bytes are no entry.
    """
    try:
        return decode(Entry, VERSION, data)
    except ProtocolError as error:
        raise Corrupt(f"entry {number} of the cluster log cannot be read: {error}") from error


def read_events(number: int, entry: Entry) -> list[Message]:
    """Read an entry's events.

    Raises:
        Corrupt: an event cannot be read, or is newer than this program.
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
