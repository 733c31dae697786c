"""BrokerHeartbeat (key 63): a broker reports to the KRaft controller that it lives.

The controller fences a broker that falls silent, unfences one that has caught up with the metadata
log, and decides when a broker that wants to stop may do so.

Versions:
    1 names log directories that failed (KIP-858).
    2 names log directories that must get no new partitions (KIP-1066).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, BrokerId, Message, Offset, Uuid, field, i32, i64


class BrokerHeartbeatRequest(Message):
    """The broker's progress and wishes."""

    broker_id: BrokerId
    broker_epoch: i64 = -1
    current_metadata_offset: Offset  # how far the broker has applied the metadata log
    want_fence: bool
    want_shut_down: bool
    offline_log_dirs: list[Uuid] = field(since=1, tag=0, factory=list)
    cordoned_log_dirs: list[Uuid] | None = field(since=2, tag=1, default=None)


class BrokerHeartbeatResponse(Message):
    """The controller's view of the broker."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool


def refuse(request: BrokerHeartbeatRequest, code: ErrorCode) -> BrokerHeartbeatResponse:
    """Give the code; a broker that was not heard counts as fenced."""
    return BrokerHeartbeatResponse(error_code=code, should_shut_down=False)


BROKER_HEARTBEAT = Api(
    key=63,
    request=BrokerHeartbeatRequest,
    response=BrokerHeartbeatResponse,
    versions=range(3),
    flexible=0,
    refuse=refuse,
)
