"""JoinGroup: a member joins a classic group or its next generation."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.groups.requests import Answer, hand_over
from rookery.wire.messages.join_group import JOIN_GROUP, JoinGroupRequest, JoinGroupResponse


@handles(
    JOIN_GROUP,
    versions=range(10),
    mutates=True,
    is_served_read_only=True,
)
def join_group(call: Call, request: JoinGroupRequest) -> Answer[JoinGroupResponse]:
    """Join a classic group; the response is sent when all members have joined."""
    return hand_over(call, JOIN_GROUP, request, creates=not request.member_id, joins=True)
