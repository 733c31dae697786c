"""ListPartitionReassignments: always empty, since partitions are in the store, not on brokers."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.errors import ErrorCode
from rookery.wire.messages.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


@handles(
    LIST_PARTITION_REASSIGNMENTS,
    versions=range(1),
    mutates=False,
)
def list_partition_reassignments(
    _call: Call, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Return an empty list, since partitions are never reassigned."""
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, topics=[])
