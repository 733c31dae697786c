"""Heartbeat: a member of a classic group lives."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.groups.requests import Answer, hand_over
from rookery.security.access import AclResource, Operation, named
from rookery.wire.messages.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse


@handles(
    HEARTBEAT,
    versions=range(5),
    mutates=True,
    is_served_read_only=True,
    touches=(named(AclResource.GROUP, Operation.READ),),
)
def heartbeat(call: Call, request: HeartbeatRequest) -> Answer[HeartbeatResponse]:
    """Put the member's session off, and say whether the group is being rebalanced."""
    return hand_over(call, HEARTBEAT, request)
