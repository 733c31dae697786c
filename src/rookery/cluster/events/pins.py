"""Events of pins: somebody reads a topic as it is, and compaction waits for them, for a while."""

from __future__ import annotations

from rookery.wire.message import Message, Offset, PartitionId, TopicId, Uuid, field, i64


class PinStart(Message):
    """From which offset on a partition is held."""

    partition: PartitionId
    offset: Offset


class TopicPinned(Message, key=24, versions=range(1), flexible=0):
    """No record of the topic is compacted away until a moment; saying it again moves that.

    With starts, only what lies there and behind is held, and partitions without one are not.
    """

    topic_id: TopicId
    pin_id: Uuid
    until_ms: i64  # by the stamps of entries
    starts: list[PinStart] = field(tag=0, factory=list)


class TopicUnpinned(Message, key=25, versions=range(1), flexible=0):
    """The reader is done, or gone."""

    topic_id: TopicId
    pin_id: Uuid
