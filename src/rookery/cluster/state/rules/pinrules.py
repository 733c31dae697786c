"""The effects of pins: while a pin is valid, compaction of the pinned records is void.

A pin covers a whole topic, or the records from a given offset in some partitions. So a continuous
reader that reports its progress does not block compaction permanently.

A pin that is not removed expires: entries carry the time, so all replicas agree on the moment. It
only blocks compaction. Retention and deletion continue, and so does rewriting, which keeps every
record and its offset.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from rookery.cluster.entry import Entry
from rookery.cluster.events import pinevents
from rookery.cluster.state.outcome import OK, EntryOutcome, Outcome
from rookery.cluster.state.topics import Pin, Topics
from rookery.errors import ErrorCode
from rookery.wire.message import Message

MAX_PIN_MS: Final = 7 * 86_400_000
"""The maximum lifetime of a pin unless it is renewed: its owner may no longer exist."""

_UNKNOWN: Final = Outcome(ErrorCode.UNKNOWN_TOPIC_ID)


class PinContext(Protocol):
    """The part of the state that pins depend on."""

    topics: Topics


def _pin_topic(
    known: PinContext, entry: Entry, event: pinevents.TopicPinned, _done: EntryOutcome
) -> Outcome:
    topic = known.topics.by_id.get(event.topic_id)
    if topic is None:
        return _UNKNOWN
    now = entry.stamp_ms
    topic.pins = {key: pin for key, pin in topic.pins.items() if pin.until_ms > now}
    until = min(event.until_ms, now + MAX_PIN_MS)
    starts = {start.partition: start.offset for start in event.starts}
    topic.pins[bytes(event.pin_id)] = Pin(until, starts)
    return Outcome(ErrorCode.NONE, until)


def _unpin_topic(
    known: PinContext, _entry: Entry, event: pinevents.TopicUnpinned, _done: EntryOutcome
) -> Outcome:
    topic = known.topics.by_id.get(event.topic_id)
    if topic is None:
        return _UNKNOWN
    topic.pins.pop(bytes(event.pin_id), None)
    return OK


HANDLERS: Final[dict[type[Message], Callable[..., Outcome]]] = {
    pinevents.TopicPinned: _pin_topic,
    pinevents.TopicUnpinned: _unpin_topic,
}
