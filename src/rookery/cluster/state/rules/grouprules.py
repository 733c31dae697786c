"""The effects of group events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from rookery.cluster.entry import Entry
from rookery.cluster.events import groupevents
from rookery.cluster.state.brokers import Brokers
from rookery.cluster.state.groups import Group, Groups, coordinator_of, pack
from rookery.cluster.state.outcome import OK, EntryOutcome, Outcome
from rookery.cluster.state.topics import Topics
from rookery.errors import ErrorCode
from rookery.wire.message import Message

_NOT_COORDINATOR: Final = Outcome(ErrorCode.NOT_COORDINATOR)
_MOVED: Final = Outcome(ErrorCode.REBALANCE_IN_PROGRESS)
_HAS_MEMBERS: Final = Outcome(ErrorCode.NON_EMPTY_GROUP)


class GroupContext(Protocol):
    """The parts of the state that groups depend on."""

    brokers: Brokers
    topics: Topics
    groups: Groups


def _claim_group(
    known: GroupContext, entry: Entry, event: groupevents.GroupClaimed, done: EntryOutcome
) -> Outcome:
    broker = known.brokers.of(entry.incarnation)
    chosen = coordinator_of(event.group_id, known.brokers.nodes)
    if broker is None or broker.node_id != chosen:
        return _NOT_COORDINATOR
    done.claims_changed.append(event.group_id)
    return Outcome(ErrorCode.NONE, known.groups.claim(event.group_id, entry.incarnation).epoch)


def _persist_group(
    known: GroupContext, entry: Entry, event: groupevents.GroupPersisted, _done: EntryOutcome
) -> Outcome:
    group = known.groups.find_led(event.group_id, entry.incarnation, event.epoch)
    if group is None or group.version != event.version:
        return _NOT_COORDINATOR
    if not event.is_last:
        group.staged += event.body
        return OK
    group.body, group.staged, group.changes = group.staged + event.body, b"", []
    group.kind = event.kind
    group.version += 1
    group.persisted_ms = entry.stamp_ms
    return Outcome(ErrorCode.NONE, group.version)


def _change_group(
    known: GroupContext, entry: Entry, event: groupevents.GroupChanged, _done: EntryOutcome
) -> Outcome:
    group = known.groups.find_led(event.group_id, entry.incarnation, event.epoch)
    if group is None or group.version != event.version or not group.kind:
        return _NOT_COORDINATOR
    group.changes.append(event.change)
    group.version += 1
    group.persisted_ms = entry.stamp_ms
    return Outcome(ErrorCode.NONE, group.version)


def _commit_offsets(
    known: GroupContext, entry: Entry, event: groupevents.OffsetsCommitted, _done: EntryOutcome
) -> Outcome:
    group = known.groups.find_led(event.group_id, entry.incarnation, event.epoch)
    if group is None:
        return _NOT_COORDINATOR
    codes = [_commit(known, group, offset, entry.stamp_ms) for offset in event.offsets]
    return Outcome(ErrorCode.NONE, codes)


def _commit(
    known: GroupContext, group: Group, commit: groupevents.OffsetCommitted, stamp_ms: int
) -> ErrorCode:
    # A topic that was deleted, or deleted and recreated, in the meantime has another id.
    if known.topics.partition(commit.topic_id, commit.partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    group.offsets.setdefault(commit.topic_id, {})[commit.partition] = pack(commit, stamp_ms)
    return ErrorCode.NONE


def _offsets_deleted(
    known: GroupContext, entry: Entry, event: groupevents.OffsetsDeleted, _done: EntryOutcome
) -> Outcome:
    group = known.groups.find_led(event.group_id, entry.incarnation, event.epoch)
    if group is None:
        return _NOT_COORDINATOR
    return Outcome(
        ErrorCode.NONE, [group.forget(place.topic_id, place.partition) for place in event.places]
    )


def _offsets_expired(
    known: GroupContext, entry: Entry, event: groupevents.OffsetsExpired, _done: EntryOutcome
) -> Outcome:
    group = known.groups.find_led(event.group_id, entry.incarnation, event.epoch)
    if group is None:
        return _NOT_COORDINATOR
    gone = 0
    for place in event.places:
        offset = group.offset(place.topic_id, place.partition)
        if offset is not None and offset.commit_ms == place.commit_ms:
            gone += group.forget(place.topic_id, place.partition)
    return Outcome(ErrorCode.NONE, gone)


def _delete_group(
    known: GroupContext, entry: Entry, event: groupevents.GroupDeleted, done: EntryOutcome
) -> Outcome:
    return _remove(known, entry, event, done, keep_offsets=False)


def _expire_group(
    known: GroupContext, entry: Entry, event: groupevents.GroupExpired, done: EntryOutcome
) -> Outcome:
    return _remove(known, entry, event, done, keep_offsets=True)


def _remove(
    known: GroupContext,
    entry: Entry,
    event: groupevents.GroupDeleted | groupevents.GroupExpired,
    done: EntryOutcome,
    *,
    keep_offsets: bool,
) -> Outcome:
    group = known.groups.find_led(event.group_id, entry.incarnation, event.epoch)
    if group is None:
        return _NOT_COORDINATOR
    if group.version != event.version or (keep_offsets and group.offsets):
        return _MOVED
    del known.groups.by_id[event.group_id]
    done.claims_changed.append(event.group_id)
    return OK


def _publish_offsets(
    known: GroupContext, entry: Entry, event: groupevents.OffsetsPublished, _done: EntryOutcome
) -> Outcome:
    group = known.groups.by_id.get(event.group_id)
    if group is not None and group.kind:
        return _HAS_MEMBERS
    if group is None:
        group = known.groups.by_id[event.group_id] = Group(event.group_id)
    codes = [_commit(known, group, offset, entry.stamp_ms) for offset in event.offsets]
    return Outcome(ErrorCode.NONE, codes)


HANDLERS: Final[dict[type[Message], Callable[..., Outcome]]] = {
    groupevents.GroupClaimed: _claim_group,
    groupevents.GroupPersisted: _persist_group,
    groupevents.GroupChanged: _change_group,
    groupevents.OffsetsCommitted: _commit_offsets,
    groupevents.OffsetsDeleted: _offsets_deleted,
    groupevents.OffsetsExpired: _offsets_expired,
    groupevents.GroupDeleted: _delete_group,
    groupevents.GroupExpired: _expire_group,
    groupevents.OffsetsPublished: _publish_offsets,
}
