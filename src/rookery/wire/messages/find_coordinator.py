"""FindCoordinator (key 10): which broker looks after a group, a transactional id or a share.

Versions:
    0 groups only.
    1 the kind of coordinator is named: transactions have one too (KIP-98).
    2 a throttled client is answered at once and waits by itself (KIP-219).
    3 flexible.
    4 several keys in one request (KIP-699).
    5 the client knows TRANSACTION_ABORTABLE (KIP-890).
    6 coordinators of share partitions (KIP-932).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, BrokerId, CoordinatorKey, Host, Message, Port, field, i8, i32
from rookery.wire.resources import AskedCoordinatorKey


class FindCoordinatorRequest(Message):
    """Whose coordinator to find: one key's up to version 3, any number's from version 4."""

    key: AskedCoordinatorKey = field(until=3, default="")
    # The kind of keys: 0 group ids, 1 transactional ids, 2 shares ("group:topic id:partition").
    key_type: i8 = field(since=1, default=0)
    coordinator_keys: list[AskedCoordinatorKey] = field(since=4, factory=list)


class FindCoordinatorResponse(Message):
    """Where the coordinators are: one up to version 3, a list from version 4."""

    throttle_time_ms: i32 = field(since=1, default=0)
    error_code: ErrorCode = field(until=3, default=ErrorCode.NONE)
    error_message: str | None = field(since=1, until=3, default=None)
    node_id: BrokerId = field(until=3, default=-1)
    host: Host = field(until=3, default="")
    port: Port = field(until=3, default=-1)
    coordinators: list[Coordinator] = field(since=4, factory=list)


class Coordinator(Message):
    """Where one key's coordinator is."""

    key: CoordinatorKey
    node_id: BrokerId  # -1, with an empty host and port -1, where there is an error
    host: Host
    port: Port
    error_code: ErrorCode
    error_message: str | None = None


def refuse(request: FindCoordinatorRequest, code: ErrorCode) -> FindCoordinatorResponse:
    """Give the code to every key; up to version 3, to the whole answer."""
    if not request.coordinator_keys:
        return FindCoordinatorResponse(error_code=code, error_message=code.sentence)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(
                key=key,
                node_id=-1,
                host="",
                port=-1,
                error_code=code,
                error_message=code.sentence,
            )
            for key in request.coordinator_keys
        ]
    )


FIND_COORDINATOR = Api(
    key=10,
    request=FindCoordinatorRequest,
    response=FindCoordinatorResponse,
    versions=range(7),
    flexible=3,
    refuse=refuse,
    items=(Items("coordinator_keys", "coordinators(key)"),),
)
