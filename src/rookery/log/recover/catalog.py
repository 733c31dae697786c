"""Restores the list of topics from the snapshot and from newer objects.

A topic in an object's manifest existed when the object was written. If that was after the snapshot
and the snapshot does not contain the topic, it is new. If it was before the snapshot, the topic was
deleted since. Deletions after the snapshot cannot be detected: such a topic is restored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.log.recover.survey import StoreSurvey

# Topics that are found only in a segment are treated as older than all others.
_LONG_AGO = -1


class NamedTopic(NamedTuple):
    """A topic as an object describes it; sorts by age."""

    seen: int
    """The last entry that its writer had applied."""
    topic_id: bytes
    name: str
    partitions: int


class CatalogChanges(NamedTuple):
    """The topics that were added to the state of the snapshot, and removed from it."""

    added: list[str]
    """Topics that the snapshot does not contain: their settings are not known."""
    dropped: list[str]
    """Topics that were replaced by a newer one of the same name."""


def restore_topics(state: State, survey: StoreSurvey) -> CatalogChanges:
    """Add newer topics to the state of a snapshot, and remove those that they replaced."""
    since = survey.snapshot.applied if survey.snapshot is not None else _LONG_AGO - 1
    added: dict[bytes, str] = {}
    dropped: list[str] = []
    for named in sorted(_topics_of(survey)):
        if named.seen <= since:
            continue
        topic = state.topics.by_id.get(named.topic_id)
        if topic is None:
            rival = state.topics.alike(named.name)
            if rival is not None:
                _drop(state, state.topics.by_name[rival])
                dropped.append(rival)
            topic = Topic(named.topic_id, named.name, replication_factor=1)
            state.topics.add(topic)
            added[named.topic_id] = named.name
        topic.grow(max(named.partitions, len(topic.partitions)), [])
    names = [name for topic_id, name in added.items() if topic_id in state.topics.by_id]
    return CatalogChanges(names, dropped)


def _topics_of(survey: StoreSurvey) -> Iterator[NamedTopic]:
    """Yield each topic once for every object that describes it."""
    for stored in survey.objects.values():
        manifest = stored.manifest
        partitions = dict.fromkeys(range(len(manifest.topics)), 0)
        for extent in manifest.extents:
            partitions[extent.topic] = max(partitions.get(extent.topic, 0), extent.partition + 1)
        for index, topic in enumerate(manifest.topics):
            if topic.name:
                count = max(topic.partitions, partitions[index])
                yield NamedTopic(manifest.seen, topic.topic_id, topic.name, count)
    for segment in survey.segments.values():
        origin = segment.times.origin
        yield NamedTopic(_LONG_AGO, origin.topic_id, origin.topic, origin.partition + 1)


def _drop(state: State, topic: Topic) -> None:
    state.topics.remove(topic)
    if any(partition.named_to >= 0 for partition in topic.partitions):
        state.objects.retired_names[topic.name] = None
