"""Events of topics and of their log starts."""

from __future__ import annotations

from rookery.cluster.events.brokerevents import SettingChange
from rookery.wire.message import Message, Offset, PartitionId, TopicId, TopicName, i16, i32


class TopicCreated(Message, key=20, versions=range(1), flexible=0):
    """A topic is created; void if its name is taken."""

    topic_id: TopicId
    name: TopicName
    partitions: i32
    replication_factor: i16  # as requested; durability is the store's
    configs: list[SettingChange]


class TopicDeleted(Message, key=21, versions=range(1), flexible=0):
    """A topic is deleted with all its data."""

    topic_id: TopicId


class PartitionsAdded(Message, key=22, versions=range(1), flexible=0):
    """A topic grows to a number of partitions; void if it already has as many."""

    topic_id: TopicId
    partitions: i32


class LogStartMoved(Message, key=23, versions=range(1), flexible=0):
    """Records below an offset are deleted, by retention or by a client's request."""

    topic_id: TopicId
    partition: PartitionId
    offset: Offset  # -1: the high watermark
