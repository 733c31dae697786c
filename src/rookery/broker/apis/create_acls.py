"""CreateAcls: refused, since this broker has no ACLs."""

from __future__ import annotations

from rookery.broker.call import Call, handles
from rookery.broker.operations import NO_AUTHORIZER
from rookery.errors import ErrorCode
from rookery.security.access import Operation, cluster
from rookery.wire.messages.create_acls import (
    CREATE_ACLS,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


@handles(CREATE_ACLS, versions=range(1, 4), mutates=False, touches=(cluster(Operation.ALTER),))
def create_acls(_call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    """Refuse every ACL, since this broker has no authorizer."""
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
            for _ in request.creations
        ]
    )
