"""Heartbeat: keeps the session of a classic group's member alive."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.groups.requests import Answer, hand_over
from rookery.wire.messages.heartbeat import HEARTBEAT, HeartbeatRequest, HeartbeatResponse


@handles(
    HEARTBEAT,
    versions=range(5),
    mutates=True,
    is_served_read_only=True,
)
def heartbeat(call: Call, request: HeartbeatRequest) -> Answer[HeartbeatResponse]:
    """Extend the member's session, and report whether the group is rebalancing."""
    return hand_over(call, HEARTBEAT, request)
