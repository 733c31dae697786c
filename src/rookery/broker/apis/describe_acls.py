"""DescribeAcls: refused, since this broker has no ACLs."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.operations import NO_AUTHORIZER
from rookery.errors import ErrorCode
from rookery.security.access import Operation, cluster
from rookery.wire.messages.describe_acls import (
    DESCRIBE_ACLS,
    DescribeAclsRequest,
    DescribeAclsResponse,
)


@handles(DESCRIBE_ACLS, versions=range(1, 4), mutates=False, touches=(cluster(Operation.DESCRIBE),))
def describe_acls(_call: Call, _request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Refuse, since this broker has no authorizer and no ACLs to list."""
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, resources=[]
    )
