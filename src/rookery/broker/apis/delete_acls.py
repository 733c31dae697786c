"""DeleteAcls: remove the access rules that filters find."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.broker.acls import NO_AUTHORIZER, read_each, write_filter
from rookery.broker.call import Call, handles
from rookery.broker.decisions import decide, require_security
from rookery.cluster.events.securityevents import AclsDeleted
from rookery.errors import ApiError, ErrorCode
from rookery.model.acl import StoredAcl
from rookery.security.access import Operation, cluster
from rookery.security.acl import read_filter
from rookery.wire.messages.delete_acls import (
    DELETE_ACLS,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


@handles(
    DELETE_ACLS,
    versions=range(1, 4),
    mutates=True,
    is_served_read_only=True,
    touches=(cluster(Operation.ALTER),),
)
async def delete_acls(call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Remove the access rules that match; refuse if this broker has no authorizer."""
    if call.services.guard is None:
        disabled = _result(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return DeleteAclsResponse(filter_results=[disabled for _ in request.filters])
    require_security(call)
    rows = read_each(request.filters, lambda wanted: write_filter(read_filter(wanted)))
    results = [
        _result(row.code, str(row)) if isinstance(row, ApiError) else _result(ErrorCode.NONE, None)
        for row in rows
    ]
    valid = [(at, row) for at, row in enumerate(rows) if not isinstance(row, ApiError)]
    if valid:
        [outcome] = await decide(call, [AclsDeleted(filters=[row for _, row in valid])])
        removed: Sequence[Sequence[StoredAcl]] = outcome.value or [()] * len(valid)
        for (at, _), rules in zip(valid, removed, strict=True):
            results[at].error_code = outcome.error
            results[at].matching_acls = [_matching(rule) for rule in rules]
    return DeleteAclsResponse(filter_results=results)


def _result(code: ErrorCode, text: str | None) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=code, error_message=text, matching_acls=[])


def _matching(rule: StoredAcl) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE,
        resource_type=rule.resource_type,
        resource_name=rule.resource_name,
        pattern_type=rule.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )
