"""LeaveGroup (key 13): members go, so that their partitions need not wait for a session timeout.

Versions:
    1 the response has the throttle time.
    2 a throttled client is answered at once and waits by itself (KIP-219).
    3 several members at once, static ones too, so that a tool can remove them (KIP-345).
    4 flexible.
    5 why a member leaves, for the log (KIP-800).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, GroupId, InstanceId, MemberId, Message, field, i32


class LeaveGroupRequest(Message):
    """The members that leave: one up to version 2, any number from version 3."""

    group_id: GroupId
    member_id: MemberId = field(until=2, default="")
    members: list[MemberIdentity] = field(since=3, factory=list)


class MemberIdentity(Message):
    """A member, known by its id or, if static, by its instance id and an empty member id."""

    member_id: MemberId
    group_instance_id: InstanceId | None = None
    reason: str | None = field(since=5, default=None)


class LeaveGroupResponse(Message):
    """The members that have left."""

    throttle_time_ms: i32 = field(since=1, default=0)
    error_code: ErrorCode
    members: list[MemberResponse] = field(since=3, factory=list)


class MemberResponse(Message):
    """Whether one member has left."""

    member_id: MemberId
    group_instance_id: InstanceId | None = None
    error_code: ErrorCode


def refuse(request: LeaveGroupRequest, code: ErrorCode) -> LeaveGroupResponse:
    """Answer with the code for all; no member is listed then."""
    return LeaveGroupResponse(error_code=code)


def refuse_items(request: LeaveGroupRequest, code: ErrorCode) -> LeaveGroupResponse:
    """Give the code to every member."""
    return LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=code,
            )
            for member in request.members
        ],
    )


LEAVE_GROUP = Api(
    key=13,
    request=LeaveGroupRequest,
    response=LeaveGroupResponse,
    versions=range(6),
    flexible=4,
    refuse=refuse,
    items=(
        Items("members(member_id, group_instance_id)", "members(member_id, group_instance_id)"),
    ),
    refuse_items=refuse_items,
)
