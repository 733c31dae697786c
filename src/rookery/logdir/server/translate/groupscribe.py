"""Writes groups and their committed offsets into `__consumer_offsets`."""

from __future__ import annotations

from rookery.cluster.events import groupevents, topicevents
from rookery.cluster.state.outcome import Outcome
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.cluster.state.txns import TransactionOwner
from rookery.logdir.server.loadeddirectory import LoadedDirectory
from rookery.logdir.server.translate import offsetrecords
from rookery.logdir.server.translate.internalbatch import internal_settings
from rookery.logdir.server.translate.work import EventWriters, Work
from rookery.logdir.writer.segmentfile import NewBatch
from rookery.records import batches, recordcodec
from rookery.records.recordcodec import Record
from rookery.wire.message import Message

Doomed = dict[str, list[tuple[str, int]]]
"""Offsets to delete: topics and partitions by group."""


class GroupScribe:
    """Translates events about groups and their offsets."""

    def __init__(self, loaded: LoadedDirectory) -> None:
        self._loaded = loaded
        self._state = loaded.state
        self.writers: EventWriters = {
            groupevents.GroupPersisted: self._write_group,
            groupevents.OffsetsCommitted: self._offsets,
            groupevents.OffsetsPublished: self._offsets,
            groupevents.OffsetsDeleted: self._offsets_deleted,
            groupevents.OffsetsExpired: self._offsets_deleted,
            groupevents.GroupDeleted: self._group_deleted,
            groupevents.GroupExpired: self._group_deleted,
        }

    def foresee(self, events: list[Message]) -> Doomed:
        """Collect the offsets that will no longer be known after the entry is applied."""
        state = self._state
        doomed: Doomed = {}
        for event in events:
            if isinstance(event, groupevents.GroupDeleted | groupevents.GroupExpired):
                group = state.groups.by_id.get(event.group_id)
                places = doomed.setdefault(event.group_id, [])
                for topic_id, partition, _ in group.each_offset() if group is not None else ():
                    topic = state.topics.by_id.get(topic_id)
                    if topic is not None:
                        places.append((topic.name, partition))
            elif isinstance(event, topicevents.TopicDeleted):
                topic = state.topics.by_id.get(event.topic_id)
                if topic is not None:
                    _doom_topic(state, topic, doomed)
        return doomed

    def remove(self, work: Work, doomed: Doomed) -> None:
        """Write tombstones for offsets that are no longer known."""
        for group_id, names in doomed.items():
            self._remove(work, group_id, names)

    def append(
        self, work: Work, group_id: str, rows: list[Record], writer: TransactionOwner | None = None
    ) -> None:
        """Write records into a group's partition, within a transaction if there is a writer."""
        key = offsetrecords.offsets_place(self._state, group_id)
        if key is None or not rows:
            return
        settings = internal_settings(self._loaded, work, key, writer)
        if settings is not None:
            data = recordcodec.build(rows, settings)
            work.add(key, NewBatch(batches.parse(data), data))

    def _offsets(
        self,
        work: Work,
        event: groupevents.OffsetsCommitted | groupevents.OffsetsPublished,
        outcome: Outcome,
    ) -> None:
        rows = offsetrecords.commits(
            self._state, event.group_id, event.offsets, outcome.value, work.now_ms
        )
        self.append(work, event.group_id, list(rows))

    def _write_group(self, work: Work, event: groupevents.GroupPersisted, _: Outcome) -> None:
        """Record once that the members that Kafka knew of a group are not here."""
        generation = self._loaded.populated.pop(event.group_id, None)
        if generation is not None:
            row = offsetrecords.group_emptied(event.group_id, generation, work.now_ms)
            self.append(work, event.group_id, [row])

    def _offsets_deleted(
        self,
        work: Work,
        event: groupevents.OffsetsDeleted | groupevents.OffsetsExpired,
        _: Outcome,
    ) -> None:
        names = []
        group = self._state.groups.by_id.get(event.group_id)
        for place in event.places:
            topic = self._state.topics.by_id.get(place.topic_id)
            is_gone = group is None or group.offset(place.topic_id, place.partition) is None
            if topic is not None and is_gone:
                names.append((topic.name, place.partition))
        self._remove(work, event.group_id, names)

    def _group_deleted(
        self,
        work: Work,
        event: groupevents.GroupDeleted | groupevents.GroupExpired,
        _: Outcome,
    ) -> None:
        # Its offsets were collected before they were deleted.
        row = offsetrecords.group_removed(event.group_id, work.now_ms)
        self.append(work, event.group_id, [row])

    def _remove(self, work: Work, group_id: str, names: list[tuple[str, int]]) -> None:
        rows = list(offsetrecords.removals(names, group_id, work.now_ms))
        self.append(work, group_id, rows)


def _doom_topic(state: State, topic: Topic, doomed: Doomed) -> None:
    for group in state.groups:
        for partition in group.offsets.get(topic.id, ()):
            doomed.setdefault(group.id, []).append((topic.name, partition))
