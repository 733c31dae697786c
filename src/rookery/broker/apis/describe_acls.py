"""DescribeAcls: list the access rules that a filter finds."""

from __future__ import annotations

from itertools import groupby

from rookery.broker.acls import NO_AUTHORIZER
from rookery.broker.call import Call, handles
from rookery.errors import ErrorCode
from rookery.model.acl import PatternType
from rookery.security.access import AclResource
from rookery.security.acl import AclBinding, read_filter
from rookery.wire.messages.describe_acls import (
    DESCRIBE_ACLS,
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


@handles(DESCRIBE_ACLS, versions=range(1, 4), mutates=False)
async def describe_acls(call: Call, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """List access rules by resource; refuse if this broker has no authorizer."""
    guard = call.services.guard
    if guard is None:
        return DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, resources=[]
        )
    choice = read_filter(request)
    await call.services.replica.barrier()
    matches = guard.policy.rules.select(choice)
    return DescribeAclsResponse(
        error_code=ErrorCode.NONE,
        resources=[_resource(key, list(rules)) for key, rules in groupby(matches, _pattern)],
    )


def _pattern(rule: AclBinding) -> tuple[AclResource, PatternType, str]:
    return rule.resource_type, rule.pattern_type, rule.name


def _resource(
    pattern: tuple[AclResource, PatternType, str], rules: list[AclBinding]
) -> DescribeAclsResource:
    resource_type, pattern_type, name = pattern
    return DescribeAclsResource(
        resource_type=resource_type,
        resource_name=name,
        pattern_type=pattern_type,
        acls=[
            AclDescription(
                principal=rule.principal,
                host=rule.host,
                operation=rule.operation,
                permission_type=rule.permission,
            )
            for rule in rules
        ],
    )
