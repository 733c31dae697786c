"""Heartbeat (key 12): a member of a classic group shows that it is alive, and learns of rebalances.

Versions:
    1 the response has the throttle time.
    2 a throttled client is answered at once and waits by itself (KIP-219).
    3 static members (KIP-345).
    4 flexible.
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, GroupId, InstanceId, MemberId, Message, field, i32


class HeartbeatRequest(Message):
    """A member says that it is alive."""

    group_id: GroupId
    generation_id: i32
    member_id: MemberId
    group_instance_id: InstanceId | None = field(since=3, default=None)


class HeartbeatResponse(Message):
    """Whether the member is still known; REBALANCE_IN_PROGRESS bids it join again."""

    throttle_time_ms: i32 = field(since=1, default=0)
    error_code: ErrorCode


def refuse(request: HeartbeatRequest, code: ErrorCode) -> HeartbeatResponse:
    """Answer with the code."""
    return HeartbeatResponse(error_code=code)


HEARTBEAT = Api(
    key=12,
    request=HeartbeatRequest,
    response=HeartbeatResponse,
    versions=range(5),
    flexible=4,
    refuse=refuse,
)
