"""Which topics there are: those of the snapshot, and what objects tell of newer ones.

A topic that an object names was there when the object was written. If that was after the snapshot
and the snapshot does not have it, it is new; if it was before, the topic was deleted since. What
was deleted after the snapshot nobody can tell: such a topic is there again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.log.recover.survey import StoreSurvey

# Topics that only a segment tells of were there before all others.
_LONG_AGO = -1


class NamedTopic(NamedTuple):
    """What some object tells of a topic."""

    seen: int
    """The last entry that its writer had applied."""
    topic_id: bytes
    name: str
    partitions: int


class Catalog(NamedTuple):
    """What became of the topics."""

    added: list[str]
    """Topics that the snapshot does not have: their settings are not known."""
    dropped: list[str]
    """Topics that had to give way to a newer one of the same name."""


def restore_topics(state: State, survey: StoreSurvey) -> Catalog:
    """Bring the topics of a snapshot's state up to date."""
    since = survey.snapshot.applied if survey.snapshot is not None else _LONG_AGO - 1
    added: dict[bytes, str] = {}
    dropped: list[str] = []
    for one in sorted(_named(survey)):
        if one.seen <= since:
            continue
        topic = state.topics.by_id.get(one.topic_id)
        if topic is None:
            rival = state.topics.alike(one.name)
            if rival is not None:
                _drop(state, state.topics.by_name[rival])
                dropped.append(rival)
            topic = Topic(one.topic_id, one.name, replication_factor=1)
            state.topics.add(topic)
            added[one.topic_id] = one.name
        topic.grow(max(one.partitions, len(topic.partitions)), [])
    names = [name for topic_id, name in added.items() if topic_id in state.topics.by_id]
    return Catalog(names, dropped)


def _named(survey: StoreSurvey) -> Iterator[NamedTopic]:
    for headed in survey.objects.values():
        manifest = headed.manifest
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
