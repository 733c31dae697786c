"""FindCoordinator: where a group or a transaction is looked after; so far, nowhere.

Groups and transactions are not served yet, and the answer says so. It is served all the same
because librdkafka takes a broker without FindCoordinator for one too old to know lz4, and sends
uncompressed what its user wants compressed.
"""

from __future__ import annotations

from rookery.broker.call import Call
from rookery.broker.registry import handles
from rookery.errors import ErrorCode
from rookery.wire.messages.find_coordinator import (
    FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)


@handles(FIND_COORDINATOR, versions=range(7))
def find_coordinator(_call: Call, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    """Say that there is none."""
    return FIND_COORDINATOR.refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE)
