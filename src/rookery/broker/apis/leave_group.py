"""LeaveGroup: members leave a classic group."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.groups.requests import Answer, hand_over
from rookery.wire.messages.leave_group import LEAVE_GROUP, LeaveGroupRequest, LeaveGroupResponse


@handles(
    LEAVE_GROUP,
    versions=range(6),
    mutates=True,
    is_served_read_only=True,
)
def leave_group(call: Call, request: LeaveGroupRequest) -> Answer[LeaveGroupResponse]:
    """Remove members from a classic group, and rebalance it."""
    return hand_over(call, LEAVE_GROUP, request)
