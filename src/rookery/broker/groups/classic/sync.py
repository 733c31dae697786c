"""SyncGroup for classic groups: the leader sends the assignment, and each member gets its part."""

from __future__ import annotations

from typing import Final

from rookery.broker.coordination.machine import MachineRequest
from rookery.broker.groups.classic.group import ClassicGroup, ClassicState
from rookery.broker.groups.classic.rebalance import prepare, settle
from rookery.broker.groups.classic.roster import RosterMember
from rookery.errors import ErrorCode
from rookery.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_NAMES_PROTOCOL_SINCE: Final = 5


def sync(
    group: ClassicGroup, request: MachineRequest, message: SyncGroupRequest, now_ms: int
) -> None:
    """Answer a SyncGroup, or hold it until the leader's arrives."""
    code = _check_sync(group, request, message)
    if code is not ErrorCode.NONE:
        group.reply(request, SyncGroupResponse(error_code=code, assignment=b""))
        return
    member = group.roster.members[message.member_id]
    group.unsynced.discard(message.member_id)
    if group.state is ClassicState.STABLE:
        group.reply(request, group.sync_response(member))
        group.touch(member, now_ms)
        return
    group.hold_sync(member, request)
    if message.member_id == group.roster.leader:
        _settle(group, member, message, now_ms)


def _settle(
    group: ClassicGroup, leader: RosterMember, message: SyncGroupRequest, now_ms: int
) -> None:
    """Accept the leader's assignment unless it exceeds the size limit."""
    parts = {part.member_id: part.assignment for part in message.assignments}
    if sum(len(part) for part in parts.values()) > group.settings.max_bytes:
        group.release_sync(leader, ErrorCode.MESSAGE_TOO_LARGE)
        group.touch(leader, now_ms)
        prepare(group, now_ms)
    else:
        settle(group, parts, now_ms)


def _check_sync(
    group: ClassicGroup, request: MachineRequest, message: SyncGroupRequest
) -> ErrorCode:
    code = group.check_member(message.member_id, message.group_instance_id, message.generation_id)
    if code is not ErrorCode.NONE:
        return code
    if group.state is ClassicState.PREPARING:
        # Whichever protocol it names: it may have joined while this was still a consumer group.
        return ErrorCode.REBALANCE_IN_PROGRESS
    named = (message.protocol_type, message.protocol_name)
    expected = (group.protocol_type, group.protocol)
    is_named = request.version < _NAMES_PROTOCOL_SINCE or named == expected
    return ErrorCode.NONE if is_named else ErrorCode.INCONSISTENT_GROUP_PROTOCOL
