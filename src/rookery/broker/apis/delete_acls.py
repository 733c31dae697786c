"""DeleteAcls: remove the access rules that filters find."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.broker.acls import NO_AUTHORIZER, read_each, write_filter
from rookery.broker.call import Call, handles
from rookery.broker.decisions import decide_for_all_brokers, require_security
from rookery.cluster.entry import divide_filters
from rookery.errors import ApiError, ErrorCode
from rookery.model.acl import StoredAcl
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
    events = list(divide_filters([row for row in rows if not isinstance(row, ApiError)]))
    outcomes = await decide_for_all_brokers(call, events) if events else []
    valid = (
        result for row, result in zip(rows, results, strict=True) if not isinstance(row, ApiError)
    )
    for event, outcome in zip(events, outcomes, strict=True):
        removed: Sequence[Sequence[StoredAcl]] = outcome.value or [()] * len(event.filters)
        for rules in removed:
            result = next(valid)
            result.error_code = outcome.error
            result.matching_acls = [_make_match(rule) for rule in rules]
    return DeleteAclsResponse(filter_results=results)


def _result(code: ErrorCode, text: str | None) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(error_code=code, error_message=text, matching_acls=[])


def _make_match(rule: StoredAcl) -> DeleteAclsMatchingAcl:
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
