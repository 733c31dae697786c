"""What follows from pins: while one lives, compaction of what it holds is void.

A pin holds a whole topic, or of some partitions what lies behind an offset: so a reader that goes
on and on, and says how far it is, does not keep a topic from being compacted for ever.

A pin that nobody takes back ends by itself: entries carry the time, so all replicas agree on when.
It holds off compaction only. Retention and deletion go on, and so does rewriting, which leaves
every record where its offset says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from rookery.cluster.entry import Entry
from rookery.cluster.events import pins as events
from rookery.cluster.state.outcome import OK, EntryOutcome, Outcome
from rookery.cluster.state.topics import Pin, Topics
from rookery.errors import ErrorCode
from rookery.wire.message import Message

MAX_PIN_MS: Final = 7 * 86_400_000
"""A pin lives no longer than this unless it is set again: its owner may be gone."""

_UNKNOWN: Final = Outcome(ErrorCode.UNKNOWN_TOPIC_ID)


class PinContext(Protocol):
    """The part of the state that pins depend on."""

    topics: Topics


def _pinned(
    known: PinContext, entry: Entry, event: events.TopicPinned, _done: EntryOutcome
) -> Outcome:
    topic = known.topics.by_id.get(event.topic_id)
    if topic is None:
        return _UNKNOWN
    now = entry.stamp_ms
    topic.pins = {key: pin for key, pin in topic.pins.items() if pin.until_ms > now}
    until = min(event.until_ms, now + MAX_PIN_MS)
    starts = {one.partition: one.offset for one in event.starts}
    topic.pins[bytes(event.pin_id)] = Pin(until, starts)
    return Outcome(ErrorCode.NONE, until)


def _unpinned(
    known: PinContext, _entry: Entry, event: events.TopicUnpinned, _done: EntryOutcome
) -> Outcome:
    topic = known.topics.by_id.get(event.topic_id)
    if topic is None:
        return _UNKNOWN
    topic.pins.pop(bytes(event.pin_id), None)
    return OK


HANDLERS: Final[dict[type[Message], Callable[..., Outcome]]] = {
    events.TopicPinned: _pinned,
    events.TopicUnpinned: _unpinned,
}
