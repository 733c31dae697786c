"""LeaveGroup for classic groups: removes members, and ids that no member has used yet."""

from __future__ import annotations

from typing import Final

from rookery.broker.coordination.machine import MachineRequest
from rookery.broker.groups.classic.group import ClassicGroup, ClassicState
from rookery.broker.groups.classic.rebalance import advance, complete_if_joined
from rookery.errors import ErrorCode
from rookery.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)

_BATCHED_SINCE: Final = 3


def leave(
    group: ClassicGroup, request: MachineRequest, message: LeaveGroupRequest, now_ms: int
) -> None:
    """Remove the members that a request names, and continue without them."""
    if group.state is ClassicState.DEAD:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        group.reply(request, LeaveGroupResponse(error_code=code))
        return
    is_batched = request.version >= _BATCHED_SINCE
    leaving = message.members if is_batched else [MemberIdentity(member_id=message.member_id)]
    size = len(group.roster)
    answers = [_leave_one(group, identity) for identity in leaving]
    if is_batched:
        response = LeaveGroupResponse(error_code=ErrorCode.NONE, members=answers)
    else:
        response = LeaveGroupResponse(error_code=answers[0].error_code)
    group.reply(request, response)
    if len(group.roster) < size:
        advance(group, now_ms)
    else:
        complete_if_joined(group, now_ms)


def _leave_one(group: ClassicGroup, identity: MemberIdentity) -> MemberResponse:
    """Remove one member; tools can name a static member by its instance id alone."""
    member_id = identity.member_id
    if not member_id and identity.group_instance_id is not None:
        member_id = group.roster.static.get(identity.group_instance_id, "")
    if group.forget_pending(member_id):
        code = ErrorCode.NONE
    else:
        code = group.check_member(member_id, identity.group_instance_id)
        if code is ErrorCode.NONE:
            group.remove(group.roster.members[member_id])
    return MemberResponse(
        member_id=identity.member_id,
        group_instance_id=identity.group_instance_id,
        error_code=code,
    )
