"""DescribeAcls (key 29): list the access rules that match a filter.

An access rule (ACL) binds a principal, a host, an operation and a verdict to a resource. The
numbers, here and in CreateAcls and DeleteAcls:

    resource type: 1 any, 2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token,
        7 user
    pattern type: 1 any, 2 match (whatever rule covers the name), 3 literal, 4 prefixed
    operation: 1 any, 2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe,
        9 cluster action, 10 describe configs, 11 alter configs, 12 idempotent write,
        13 create tokens, 14 describe tokens, 15 two-phase commit
    permission type: 1 any, 2 deny, 3 allow

Zero is "unknown" everywhere; "any" and "match" make sense in filters only.

Versions:
    1: adds pattern types; before, every rule is literal (KIP-290).
    2: flexible.
    3: adds the resource type "user" (KIP-373).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.message import Api, ClientHost, Message, Principal, field, i8, i32
from rookery.wire.resources import AclResourceName, AclResourceNameFilter


class DescribeAclsRequest(Message):
    """A filter; null in a name matches every name."""

    resource_type_filter: i8
    resource_name_filter: AclResourceNameFilter | None
    pattern_type_filter: i8 = field(since=1, default=3)
    principal_filter: Principal | None  # as in "User:alice"
    host_filter: ClientHost | None
    operation: i8
    permission_type: i8


class DescribeAclsResponse(Message):
    """The rules found, gathered by the resource they protect."""

    throttle_time_ms: i32 = 0
    error_code: ErrorCode
    error_message: str | None = None
    resources: list[DescribeAclsResource]


class DescribeAclsResource(Message):
    """A resource, or a prefix of many, with its rules."""

    resource_type: i8
    resource_name: AclResourceName
    pattern_type: i8 = field(since=1, default=3)
    acls: list[AclDescription]


class AclDescription(Message):
    """One rule: it allows or denies a principal on a host an operation."""

    principal: Principal
    host: ClientHost  # the client's address or "*": never a broker's, so not of the kind `Host`
    operation: i8
    permission_type: i8


def refuse(request: DescribeAclsRequest, code: ErrorCode) -> DescribeAclsResponse:
    """Answer with the code and no rules."""
    return DescribeAclsResponse(error_code=code, error_message=code.sentence, resources=[])


DESCRIBE_ACLS = Api(
    key=29,
    request=DescribeAclsRequest,
    response=DescribeAclsResponse,
    versions=range(4),
    flexible=2,
    refuse=refuse,
)
