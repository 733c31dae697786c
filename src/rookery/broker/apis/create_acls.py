"""CreateAcls: add access rules; each one stands or falls alone."""

from __future__ import annotations

from rookery.broker.acls import NO_AUTHORIZER, read_each, write_rule
from rookery.broker.call import Call, handles
from rookery.broker.decisions import decide, require_security
from rookery.cluster.events.securityevents import AclsCreated
from rookery.errors import ApiError, ErrorCode
from rookery.security.access import Operation, cluster
from rookery.security.acl import read_creation
from rookery.wire.messages.create_acls import (
    CREATE_ACLS,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


@handles(
    CREATE_ACLS,
    versions=range(1, 4),
    mutates=True,
    is_served_read_only=True,
    touches=(cluster(Operation.ALTER),),
)
async def create_acls(call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    """Add access rules; refuse all of them if this broker has no authorizer."""
    if call.services.guard is None:
        disabled = _result(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return CreateAclsResponse(results=[disabled for _ in request.creations])
    require_security(call)
    rows = read_each(request.creations, lambda creation: write_rule(read_creation(creation)))
    valid = [row for row in rows if not isinstance(row, ApiError)]
    outcome = ErrorCode.NONE
    if valid:
        [decided] = await decide(call, [AclsCreated(rules=valid)])
        outcome = decided.error
    made = _result(outcome, None if outcome is ErrorCode.NONE else outcome.sentence)
    return CreateAclsResponse(
        results=[_result(row.code, str(row)) if isinstance(row, ApiError) else made for row in rows]
    )


def _result(code: ErrorCode, text: str | None) -> AclCreationResult:
    return AclCreationResult(error_code=code, error_message=text)
