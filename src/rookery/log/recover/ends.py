"""Transaction ends after the snapshot, as brokers recorded them in later objects.

The broker that ended a transaction has recorded the positions of its markers and the group offsets
that moved with it. The transaction therefore ends in the same way again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from rookery.cluster.events.groupevents import OffsetCommitted
from rookery.cluster.state.groups import Group, pack
from rookery.cluster.state.partition import Partition
from rookery.cluster.state.state import State
from rookery.formats.manifest import EndMarker, TransactionEnd
from rookery.log.recover.chain import Candidate
from rookery.log.recover.survey import StoreSurvey

Key = tuple[bytes, int]
"""Topic id and partition."""


class RecordedEnd(NamedTuple):
    """A transaction end, and the ids of the topics that it refers to by index."""

    end: TransactionEnd
    topics: list[bytes]

    @property
    def markers(self) -> Iterator[tuple[Key, EndMarker]]:
        """Its markers with their partitions."""
        for marker in self.end.markers:
            if 0 <= marker.topic < len(self.topics):
                yield (self.topics[marker.topic], marker.partition), marker


def find_ends(survey: StoreSurvey) -> list[RecordedEnd]:
    """Return the ends that the snapshot does not contain, in the order of the cluster log."""
    since = survey.snapshot.applied if survey.snapshot is not None else -1
    keyed_ends = [
        (
            (end.entry, object_id, number),
            RecordedEnd(end, [topic.topic_id for topic in manifest.topics]),
        )
        for object_id, (manifest, _, _) in survey.objects.items()
        for number, end in enumerate(manifest.ends)
        if end.entry > since
    ]
    return [end for _, end in sorted(keyed_ends, key=lambda keyed: keyed[0])]


def marker_rows(ends: Iterable[RecordedEnd]) -> dict[Key, list[Candidate]]:
    """Return the rows of the markers."""
    rows: dict[Key, list[Candidate]] = defaultdict(list)
    for recorded in ends:
        for key, marker in recorded.markers:
            rows[key].append(_row(recorded.end, marker))
    return rows


def move_offsets(state: State, ends: Iterable[RecordedEnd]) -> None:
    """Apply the group offsets of committed transactions."""
    for end, topics in ends:
        for offset in end.offsets if end.is_commit else ():
            if (
                not 0 <= offset.topic < len(topics)
                or topics[offset.topic] not in state.topics.by_id
            ):
                continue
            event = OffsetCommitted(
                topic_id=topics[offset.topic],
                partition=offset.partition,
                offset=offset.offset,
                leader_epoch=offset.leader_epoch,
                retention_ms=offset.retention_ms,
                metadata=offset.metadata,
            )
            group = state.groups.by_id.setdefault(offset.group_id, Group(offset.group_id))
            offsets = group.offsets.setdefault(event.topic_id, {})
            offsets[offset.partition] = pack(event, offset.commit_ms)


def _row(end: TransactionEnd, marker: EndMarker) -> Candidate:
    # Created by a partition with the same next offset as the original.
    partition = Partition(marker.partition)
    partition.next_offset = marker.offset
    partition.mark(
        end.producer_id,
        end.producer_epoch,
        marker.time_ms,
        is_commit=end.is_commit,
        is_append_time=marker.is_append_time,
    )
    return Candidate(*partition.row(0), is_known=False)
