"""Events of pins: somebody reads a topic as it is, and compaction waits for them, for a while."""

from __future__ import annotations

from rookery.wire.message import Message, TopicId, Uuid, i64


class TopicPinned(Message, key=24, versions=range(1), flexible=0):
    """No record of the topic is compacted away until a moment; saying it again moves that."""

    topic_id: TopicId
    pin_id: Uuid
    until_ms: i64  # by the stamps of entries


class TopicUnpinned(Message, key=25, versions=range(1), flexible=0):
    """The reader is done, or gone."""

    topic_id: TopicId
    pin_id: Uuid
