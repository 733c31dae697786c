"""Events of pins: a reader needs a topic unchanged, and compaction waits for a limited time."""

from __future__ import annotations

from rookery.wire.message import Message, Offset, PartitionId, TopicId, Uuid, field, i64


class PinStart(Message):
    """The offset from which a partition is pinned."""

    partition: PartitionId
    offset: Offset


class TopicPinned(Message, key=24, versions=range(1), flexible=0):
    """No record of the topic is compacted away until a given time; repeating it moves that time.

    With starts, only records at or after them are pinned, and partitions without a start are not.
    """

    topic_id: TopicId
    pin_id: Uuid
    until_ms: i64  # by the stamps of entries
    starts: list[PinStart] = field(tag=0, factory=list)


class TopicUnpinned(Message, key=25, versions=range(1), flexible=0):
    """The reader has finished or disconnected."""

    topic_id: TopicId
    pin_id: Uuid
