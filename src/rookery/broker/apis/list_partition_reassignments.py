"""ListPartitionReassignments: none ever, since partitions live in the store and not on brokers."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.errors import ErrorCode
from rookery.security.access import Operation, cluster
from rookery.wire.messages.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@handles(
    LIST_PARTITION_REASSIGNMENTS,
    versions=range(1),
    mutates=False,
    touches=(cluster(Operation.DESCRIBE),),
)
def list_partition_reassignments(
    _call: Call, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Say that nothing moves."""
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, topics=[])
