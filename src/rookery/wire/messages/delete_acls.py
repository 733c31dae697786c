"""DeleteAcls (key 31): remove every access rule that matches one of some filters.

DescribeAcls explains what a rule is and what its numbers mean.

Versions:
    1: adds pattern types; before, every rule is literal (KIP-290).
    2: flexible.
    3: adds the resource type "user" (KIP-373).
"""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.wire.items import Items
from rookery.wire.message import Api, ClientHost, Message, Principal, field, i8, i32
from rookery.wire.resources import AclResourceName, AclResourceNameFilter


class DeleteAclsRequest(Message):
    """The filters; what any of them matches goes."""

    filters: list[DeleteAclsFilter]


class DeleteAclsFilter(Message):
    """A filter as in DescribeAcls; null in a name matches every name."""

    resource_type_filter: i8
    resource_name_filter: AclResourceNameFilter | None
    pattern_type_filter: i8 = field(since=1, default=3)  # literal
    principal_filter: Principal | None
    host_filter: ClientHost | None
    operation: i8
    permission_type: i8


class DeleteAclsResponse(Message):
    """One result for each filter, in the order of the request."""

    throttle_time_ms: i32 = 0
    filter_results: list[DeleteAclsFilterResult]


class DeleteAclsFilterResult(Message):
    """The rules that one filter matched."""

    error_code: ErrorCode
    error_message: str | None = None
    matching_acls: list[DeleteAclsMatchingAcl]


class DeleteAclsMatchingAcl(Message):
    """A rule that matched, and whether it could be removed."""

    error_code: ErrorCode
    error_message: str | None = None
    resource_type: i8
    resource_name: AclResourceName
    pattern_type: i8 = field(since=1, default=3)
    principal: Principal
    host: ClientHost  # the client's address or "*"
    operation: i8
    permission_type: i8


def refuse(request: DeleteAclsRequest, code: ErrorCode) -> DeleteAclsResponse:
    """Give the code to every filter, with no rules."""
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=code, error_message=code.sentence, matching_acls=[])
            for _ in request.filters
        ]
    )


DELETE_ACLS = Api(
    key=31,
    request=DeleteAclsRequest,
    response=DeleteAclsResponse,
    versions=range(4),
    flexible=2,
    refuse=refuse,
    items=(Items("filters", "filter_results"),),
)
