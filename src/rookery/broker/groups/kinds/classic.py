"""Classic groups, in which the members' own assignors distribute the partitions."""

from __future__ import annotations

from typing import Final

from rookery.broker.groups.classic.machine import CLASSIC, ClassicGroupMachine
from rookery.broker.groups.consumer.embeddedprotocol import CONSUMER
from rookery.broker.groups.kind import GroupKind, GroupSettings, StoredGroup
from rookery.errors import ErrorCode
from rookery.wire.messages.heartbeat import HEARTBEAT
from rookery.wire.messages.join_group import JOIN_GROUP
from rookery.wire.messages.leave_group import LEAVE_GROUP
from rookery.wire.messages.sync_group import SYNC_GROUP


def _new(group_id: str, settings: GroupSettings, epoch: int) -> ClassicGroupMachine:
    return ClassicGroupMachine.new(group_id, settings.classic, epoch)


def _load(stored: StoredGroup, settings: GroupSettings, now_ms: int) -> ClassicGroupMachine:
    return ClassicGroupMachine.load(stored.group_id, stored.body, settings.classic, now_ms)


KIND: Final[GroupKind[ClassicGroupMachine]] = GroupKind(
    name=CLASSIC,
    joined_by=JOIN_GROUP,
    answers=(JOIN_GROUP, SYNC_GROUP, HEARTBEAT, LEAVE_GROUP),
    new=_new,
    load=_load,
    succeeds=frozenset({CONSUMER}),
    mismatch=ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    is_initial=True,
)
