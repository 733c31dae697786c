"""ConsumerGroupHeartbeat: a consumer joins, stays in or leaves a group (KIP-848)."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.groups.consumer.member import JOINING
from rookery.broker.groups.requests import Answer, hand_over
from rookery.wire.messages.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


@handles(
    CONSUMER_GROUP_HEARTBEAT,
    versions=range(2),
    mutates=True,
    is_served_read_only=True,
)
def consumer_group_heartbeat(
    call: Call, request: ConsumerGroupHeartbeatRequest
) -> Answer[ConsumerGroupHeartbeatResponse]:
    """Process a consumer's heartbeat, and return the partitions that are assigned to it."""
    joins = request.member_epoch == JOINING
    return hand_over(call, CONSUMER_GROUP_HEARTBEAT, request, creates=joins, joins=joins)
