"""Writes committed offsets as records of `__consumer_offsets`, as Kafka's coordinator does.

Offsets of a transaction are written within it, and a marker ends it in that partition, too. Group
members are not written: they join again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rookery.cluster.events import groupevents
from rookery.cluster.state.state import State
from rookery.errors import ErrorCode
from rookery.logdir.server.translate.javahash import partition_of
from rookery.records.recordcodec import Record
from rookery.wire.coordinator.catalog import CONSUMER_OFFSETS
from rookery.wire.coordinator.classic import GroupMetadataKey, GroupMetadataValue
from rookery.wire.coordinator.offsets import OffsetCommitKey, OffsetCommitValue

_VALUE_VERSION = 3
_GROUP_VERSION = 3


def offsets_place(state: State, group_id: str) -> tuple[bytes, int] | None:
    """Return a group's partition of `__consumer_offsets`; None if the topic does not exist."""
    topic = state.topics.by_name.get(CONSUMER_OFFSETS.name)
    if topic is None:
        return None
    return topic.id, partition_of(group_id, len(topic.partitions))


def commits(
    state: State,
    group_id: str,
    offsets: Iterable[groupevents.OffsetCommitted],
    codes: Iterable[ErrorCode],
    now_ms: int,
) -> Iterator[Record]:
    """Return records for the accepted offsets."""
    for commit, code in zip(offsets, codes, strict=True):
        topic = state.topics.by_id.get(commit.topic_id)
        if code is ErrorCode.NONE and topic is not None:
            value = OffsetCommitValue(
                offset=commit.offset,
                leader_epoch=commit.leader_epoch,
                metadata=commit.metadata,
                commit_timestamp=now_ms,
            )
            data = CONSUMER_OFFSETS.write_value(value, _VALUE_VERSION)
            yield Record(_key(group_id, topic.name, commit.partition), data, (), now_ms)


def removals(names: Iterable[tuple[str, int]], group_id: str, now_ms: int) -> Iterator[Record]:
    """Return tombstones for offsets, by topic and partition."""
    for topic, partition in names:
        yield Record(_key(group_id, topic, partition), None, (), now_ms)


def group_removed(group_id: str, now_ms: int) -> Record:
    """Return the tombstone of a classic group's metadata."""
    return Record(CONSUMER_OFFSETS.write_key(GroupMetadataKey(group=group_id)), None, (), now_ms)


def group_emptied(group_id: str, generation: int, now_ms: int) -> Record:
    """Return the record of an empty group: the members that Kafka knew are not here."""
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=generation,
        protocol=None,
        leader=None,
        current_state_timestamp=now_ms,
        members=[],
    )
    key = CONSUMER_OFFSETS.write_key(GroupMetadataKey(group=group_id))
    return Record(key, CONSUMER_OFFSETS.write_value(value, _GROUP_VERSION), (), now_ms)


def _key(group_id: str, topic: str, partition: int) -> bytes:
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return CONSUMER_OFFSETS.write_key(key)
