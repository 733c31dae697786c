"""DeleteAcls: refused, since this broker has no ACLs."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.operations import NO_AUTHORIZER
from rookery.errors import ErrorCode
from rookery.security.access import Operation, cluster
from rookery.wire.messages.delete_acls import (
    DELETE_ACLS,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


@handles(DELETE_ACLS, versions=range(1, 4), mutates=False, touches=(cluster(Operation.ALTER),))
def delete_acls(_call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Refuse every filter, since this broker has no authorizer."""
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_code=ErrorCode.SECURITY_DISABLED,
                error_message=NO_AUTHORIZER,
                matching_acls=[],
            )
            for _ in request.filters
        ]
    )
