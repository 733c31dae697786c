"""How groups are claimed, loaded and persisted in the cluster log: events of groups."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from rookery.broker.coordination.machine import Event, Persist
from rookery.broker.coordination.seats import Seat
from rookery.broker.groups.kind import Step
from rookery.broker.groups.kindtable import Kinds
from rookery.broker.groups.machine import GroupMachine
from rookery.cluster.events.groupevents import GroupChanged, GroupClaimed, GroupPersisted
from rookery.cluster.replica import Replica
from rookery.cluster.state.groups import GROUP_CHANGES_LEVEL, Group, coordinator_of
from rookery.errors import Error
from rookery.wire.message import Message

log = logging.getLogger(__name__)

GroupSeat = Seat[str, GroupMachine]

# The size of an entry is limited, and other proposals need room in it too.
_PART_BYTES: Final = 128 * 1024
# The whole group is persisted again when its changes exceed twice its size.
_MIN_CHANGES_BYTES: Final = 16 * 1024
_MAX_CHANGES_BYTES: Final = 1024 * 1024


class GroupSubject:
    """Groups as keys of a coordinator."""

    def __init__(self, replica: Replica, kinds: Kinds) -> None:
        self._replica = replica
        self.kinds = kinds

    def is_ours(self, group_id: str) -> bool:
        """Return whether the hash selects this broker, according to the state applied here."""
        brokers = self._replica.state.brokers
        own = brokers.of(self._replica.incarnation)
        return own is not None and own.node_id == coordinator_of(group_id, brokers.nodes)

    def find(self, group_id: str) -> Group | None:
        """Return a group, which contains its claim."""
        return self._replica.state.groups.by_id.get(group_id)

    def claim(self, group_id: str) -> Message:
        """Return the event that claims a group."""
        return GroupClaimed(group_id=group_id)

    def load(self, group_id: str, now_ms: int) -> GroupMachine:
        """Return the machine of a group."""
        group = self.find(group_id)
        if group is None:
            return self.kinds.load(group_id, "", b"", now_ms)
        return self.decode(group, now_ms)

    def decode(self, group: Group, now_ms: int) -> GroupMachine:
        """Return the machine for a group's persisted state."""
        return self.kinds.load(group.id, group.kind, group.body, now_ms, group.changes)

    def on(self, group_id: str, machine: GroupMachine, event: Event, now_ms: int) -> Step:
        """Pass an event to a machine, which can change its kind."""
        return self.kinds.on(group_id, machine, event, now_ms)

    def events(
        self, seat: GroupSeat, machine: GroupMachine, persists: Sequence[Persist]
    ) -> list[Message]:
        """Return changes, or the whole state in parts that fit into entries."""
        changes = [persist.change for persist in persists]
        if not self._fit_as_changes(seat.key, changes):
            return _whole(seat, machine.kind, persists[-1].body)
        return [
            GroupChanged(
                group_id=seat.key, epoch=seat.epoch, version=seat.version + place, change=change
            )
            for place, change in enumerate(changes)
        ]

    def report(self, group_id: str, problem: str, error: Exception) -> None:
        """Log a failure, with a traceback if it is unexpected."""
        is_expected = isinstance(error, Error)
        log.error(
            "a group %s: %s",
            problem,
            error if is_expected else repr(error),
            exc_info=None if is_expected else error,
            extra={"group": group_id},
        )

    def _fit_as_changes(self, group_id: str, changes: list[bytes]) -> bool:
        """Return whether changes are small enough; a successor replays all since the last whole."""
        group = self.find(group_id)
        level = self._replica.state.feature_level
        if not all(changes) or group is None or level < GROUP_CHANGES_LEVEL:
            return False
        size = sum(map(len, changes)) + sum(map(len, group.changes))
        return size <= min(max(2 * len(group.body), _MIN_CHANGES_BYTES), _MAX_CHANGES_BYTES)


def _whole(seat: GroupSeat, kind: str, body: bytes) -> list[Message]:
    parts = [body[at : at + _PART_BYTES] for at in range(0, len(body), _PART_BYTES)] or [b""]
    return [
        GroupPersisted(
            group_id=seat.key,
            epoch=seat.epoch,
            version=seat.version,
            kind=kind,
            body=part,
            is_last=number == len(parts),
        )
        for number, part in enumerate(parts, 1)
    ]
