"""StreamsGroupHeartbeat as the way into a tally."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.groups.requests import Answer, hand_over
from rookery.wire.messages.streams_group_heartbeat import (
    STREAMS_GROUP_HEARTBEAT,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)


@handles(STREAMS_GROUP_HEARTBEAT, mutates=True)
def streams_group_heartbeat(
    call: Call, request: StreamsGroupHeartbeatRequest
) -> Answer[StreamsGroupHeartbeatResponse]:
    """Join, stay or leave."""
    creates = request.member_epoch == 0
    return hand_over(call, STREAMS_GROUP_HEARTBEAT, request, creates=creates)
