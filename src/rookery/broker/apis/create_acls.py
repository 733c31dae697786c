"""CreateAcls: add access rules; each one stands or falls alone."""

from __future__ import annotations

from rookery.broker.acls import NO_AUTHORIZER, read_each, write_rule
from rookery.broker.call import Call, handles
from rookery.broker.decisions import decide_for_all_brokers, require_security
from rookery.cluster.entry import divide_rules
from rookery.cluster.events.securityevents import AclRow
from rookery.errors import ApiError, ErrorCode
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
)
async def create_acls(call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    """Add access rules; refuse all of them if this broker has no authorizer."""
    if call.services.guard is None:
        disabled = _result(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        return CreateAclsResponse(results=[disabled for _ in request.creations])
    require_security(call)
    rows = read_each(request.creations, lambda creation: write_rule(read_creation(creation)))
    codes = iter(await _create(call, [row for row in rows if not isinstance(row, ApiError)]))
    return CreateAclsResponse(
        results=[
            _result(row.code, str(row)) if isinstance(row, ApiError) else _decided(next(codes))
            for row in rows
        ]
    )


async def _create(call: Call, rows: list[AclRow]) -> list[ErrorCode]:
    """Add rules, as many entries as they need; return the result of each."""
    events = list(divide_rules(rows))
    outcomes = await decide_for_all_brokers(call, list(events)) if events else []
    return [
        outcome.error for event, outcome in zip(events, outcomes, strict=True) for _ in event.rules
    ]


def _decided(code: ErrorCode) -> AclCreationResult:
    return _result(code, None if code is ErrorCode.NONE else code.sentence)


def _result(code: ErrorCode, text: str | None) -> AclCreationResult:
    return AclCreationResult(error_code=code, error_message=text)
