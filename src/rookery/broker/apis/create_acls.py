"""CreateAcls: add access rules; each one stands or falls alone."""

from __future__ import annotations

from rookery.broker.acls import NO_AUTHORIZER, write_rule
from rookery.broker.call import Call, handles
from rookery.broker.decisions import decide_for_all_brokers, require_security
from rookery.cluster.events.securityevents import AclRow, AclsCreated
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
    results: list[AclCreationResult | None] = []
    rows: list[AclRow] = []
    for creation in request.creations:
        try:
            rows.append(write_rule(read_creation(creation)))
            results.append(None)
        except ApiError as error:
            results.append(_result(error.code, str(error)))
    outcome = ErrorCode.NONE
    if rows:
        [decided] = await decide_for_all_brokers(call, [AclsCreated(rules=rows)])
        outcome = decided.error
    made = _result(outcome, None if outcome is ErrorCode.NONE else outcome.sentence)
    return CreateAclsResponse(results=[made if one is None else one for one in results])


def _result(code: ErrorCode, text: str | None) -> AclCreationResult:
    return AclCreationResult(error_code=code, error_message=text)
