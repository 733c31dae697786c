"""SyncGroup: the leader of a classic group submits the assignment; members receive their parts."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.groups.requests import Answer, hand_over
from rookery.wire.messages.sync_group import SYNC_GROUP, SyncGroupRequest, SyncGroupResponse


@handles(
    SYNC_GROUP,
    versions=range(6),
    mutates=True,
    is_served_read_only=True,
)
def sync_group(call: Call, request: SyncGroupRequest) -> Answer[SyncGroupResponse]:
    """Return the member's assignment once the leader has submitted it."""
    return hand_over(call, SYNC_GROUP, request)
