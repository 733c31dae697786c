"""Events of topics and of where their logs begin."""

from __future__ import annotations

from rookery.cluster.events.brokers import SettingChange
from rookery.wire.message import Message, Offset, PartitionId, TopicId, TopicName, i16, i32


class TopicCreated(Message, key=20, versions=range(1), flexible=0):
    """A topic is made; void if its name is taken."""

    topic_id: TopicId
    name: TopicName
    partitions: i32
    replication_factor: i16  # what was asked for; durability is the store's
    configs: list[SettingChange]


class TopicDeleted(Message, key=21, versions=range(1), flexible=0):
    """A topic goes, with all that is in it."""

    topic_id: TopicId


class PartitionsAdded(Message, key=22, versions=range(1), flexible=0):
    """A topic grows to so many partitions; void if it has as many already."""

    topic_id: TopicId
    partitions: i32


class LogStartMoved(Message, key=23, versions=range(1), flexible=0):
    """Records below an offset are gone, by retention or because a client asked for it."""

    topic_id: TopicId
    partition: PartitionId
    offset: Offset  # -1: the high watermark
