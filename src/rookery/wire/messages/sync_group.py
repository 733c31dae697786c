"""SyncGroup (key 14): the group's leader hands in the assignment, every member fetches its part.

The coordinator holds the members' answers back until the leader's request has come.

Versions:
    1 the response has the throttle time.
    2 a throttled client is answered at once and waits by itself (KIP-219).
    3 static members (KIP-345).
    4 flexible.
    5 both sides name the protocol, so that a mix-up is found out (KIP-559).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, GroupId, InstanceId, MemberId, Message, field, i32


class SyncGroupRequest(Message):
    """A member asks for its part; the leader sends all of them."""

    group_id: GroupId
    generation_id: i32
    member_id: MemberId
    group_instance_id: InstanceId | None = field(since=3, default=None)
    protocol_type: str | None = field(since=5, default=None)
    protocol_name: str | None = field(since=5, default=None)
    assignments: list[SyncGroupRequestAssignment]  # empty from all but the leader


class SyncGroupRequestAssignment(Message):
    """One member's part."""

    member_id: MemberId
    # The coordinator does not look inside; for consumers it is a list of partitions.
    assignment: bytes


class SyncGroupResponse(Message):
    """The receiver's part."""

    throttle_time_ms: i32 = field(since=1, default=0)
    error_code: ErrorCode
    protocol_type: str | None = field(since=5, default=None)
    protocol_name: str | None = field(since=5, default=None)
    assignment: bytes


def refuse(request: SyncGroupRequest, code: ErrorCode) -> SyncGroupResponse:
    """Answer with the code and an empty assignment."""
    return SyncGroupResponse(error_code=code, assignment=b"")


SYNC_GROUP = Api(
    key=14,
    request=SyncGroupRequest,
    response=SyncGroupResponse,
    versions=range(6),
    flexible=4,
    refuse=refuse,
)
