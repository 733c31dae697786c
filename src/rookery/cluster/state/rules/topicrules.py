"""The effects of events that change topics and settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from rookery.cluster.entry import Entry
from rookery.cluster.events import brokerevents, topicevents
from rookery.cluster.resources import TOPIC_RESOURCE
from rookery.cluster.state.brokers import Brokers
from rookery.cluster.state.groups import Groups
from rookery.cluster.state.objects import Objects
from rookery.cluster.state.outcome import OK, EntryOutcome, Outcome
from rookery.cluster.state.topics import Topic, Topics
from rookery.errors import ErrorCode
from rookery.wire.message import Message

SHORT_EPOCHS: Final = 2
"""The first feature level at which leader epochs are dropped with their records."""
CONDITIONAL_CONFIGS: Final = 2
"""The first feature level at which a change of settings can depend on the observed ones."""
EMPTY_CONFIGS: Final = 2
"""The first feature level at which a resource without settings is removed."""
_ALL_BROKERS: Final = ""
"""The name of the settings that topics inherit."""


class TopicContext(Protocol):
    """The parts of the state that topics and settings depend on."""

    brokers: Brokers
    topics: Topics
    objects: Objects
    groups: Groups
    broker_configs: dict[str, dict[str, str]]
    feature_level: int


def _topic_created(
    known: TopicContext, _entry: Entry, event: topicevents.TopicCreated, _done: EntryOutcome
) -> Outcome:
    if event.name in known.topics.by_name or event.topic_id in known.topics.by_id:
        return Outcome(ErrorCode.TOPIC_ALREADY_EXISTS)
    if known.topics.alike(event.name):
        return Outcome(ErrorCode.INVALID_TOPIC_EXCEPTION)
    topic = Topic(event.topic_id, event.name, event.replication_factor)
    for change in event.configs:
        topic.configure(change.name, change.value)
    topic.grow(event.partitions, known.brokers.nodes)
    known.topics.add(topic)
    return OK


def _topic_deleted(
    known: TopicContext, _entry: Entry, event: topicevents.TopicDeleted, done: EntryOutcome
) -> Outcome:
    topic = known.topics.by_id.get(event.topic_id)
    if topic is None:
        return Outcome(ErrorCode.UNKNOWN_TOPIC_ID)
    known.topics.remove(topic)
    known.groups.forget_topic(topic.id)
    if any(partition.named_to >= 0 for partition in topic.partitions):
        known.objects.retired_names[topic.name] = None
    for partition in topic.partitions:
        known.objects.free(partition.begin_at(partition.next_offset))
        # Waiting readers must learn that the partition no longer exists.
        done.grown.append((topic.id, partition.index))
    return OK


def _partitions_added(
    known: TopicContext, _entry: Entry, event: topicevents.PartitionsAdded, _done: EntryOutcome
) -> Outcome:
    topic = known.topics.by_id.get(event.topic_id)
    if topic is None:
        return Outcome(ErrorCode.UNKNOWN_TOPIC_ID)
    if event.partitions <= len(topic.partitions):
        return Outcome(ErrorCode.INVALID_PARTITIONS)
    topic.grow(event.partitions, known.brokers.nodes)
    return OK


def _configs_changed(
    known: TopicContext, _entry: Entry, event: brokerevents.ConfigsChanged, _done: EntryOutcome
) -> Outcome:
    if event.resource_type == TOPIC_RESOURCE:
        topic = known.topics.by_name.get(event.resource_name)
        if topic is None:
            return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not _is_as_observed(known, topic.configs, event):
            return Outcome(ErrorCode.INVALID_UPDATE_VERSION)
        for change in event.changes:
            topic.configure(change.name, change.value)
        return OK
    if not _is_as_observed(known, known.broker_configs.get(event.resource_name, {}), event):
        return Outcome(ErrorCode.INVALID_UPDATE_VERSION)
    configs = known.broker_configs.setdefault(event.resource_name, {})
    for change in event.changes:
        if change.value is None:
            configs.pop(change.name, None)
        else:
            configs[change.name] = change.value
    if not configs and known.feature_level >= EMPTY_CONFIGS:
        del known.broker_configs[event.resource_name]
    if event.resource_name == _ALL_BROKERS:
        known.topics.touch_all()
    return OK


def _is_as_observed(
    known: TopicContext, configs: Mapping[str, str], event: brokerevents.ConfigsChanged
) -> bool:
    """Whether the settings are still those that the change is based on."""
    if not event.is_conditional or known.feature_level < CONDITIONAL_CONFIGS:
        return True
    return configs == {setting.name: setting.value for setting in event.observed}


def _log_start_moved(
    known: TopicContext, _entry: Entry, event: topicevents.LogStartMoved, done: EntryOutcome
) -> Outcome:
    partition = known.topics.partition(event.topic_id, event.partition)
    if partition is None:
        return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    offset = partition.next_offset if event.offset == -1 else event.offset
    if not 0 <= offset <= partition.next_offset:
        return Outcome(ErrorCode.OFFSET_OUT_OF_RANGE)
    if offset > partition.log_start:
        before = partition.log_start
        known.objects.free(partition.begin_at(offset))
        if known.feature_level >= SHORT_EPOCHS:
            # Not up to the new log start: reads that began before this entry still need them.
            partition.forget_epochs(before)
        done.grown.append((event.topic_id, event.partition))
    return Outcome(ErrorCode.NONE, partition.log_start)


HANDLERS: Final[dict[type[Message], Callable[..., Outcome]]] = {
    topicevents.TopicCreated: _topic_created,
    topicevents.TopicDeleted: _topic_deleted,
    topicevents.PartitionsAdded: _partitions_added,
    topicevents.LogStartMoved: _log_start_moved,
    brokerevents.ConfigsChanged: _configs_changed,
}
