"""CreateAcls (key 30): add access rules.

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
from rookery.wire.resources import CreatedAclResourceName


class CreateAclsRequest(Message):
    """The rules to add; each stands or falls alone."""

    creations: list[AclCreation]


class AclCreation(Message):
    """One rule: it allows or denies a principal on a host an operation on a resource."""

    resource_type: i8
    resource_name: CreatedAclResourceName
    resource_pattern_type: i8 = field(since=1, default=3)  # literal
    principal: Principal
    host: ClientHost  # the client's address or "*"
    operation: i8
    permission_type: i8


class CreateAclsResponse(Message):
    """One result for each rule, in the order of the request."""

    throttle_time_ms: i32 = 0
    results: list[AclCreationResult]


class AclCreationResult(Message):
    """Whether one rule is in force; results are in the order of the request."""

    error_code: ErrorCode
    error_message: str | None = None


def refuse(request: CreateAclsRequest, code: ErrorCode) -> CreateAclsResponse:
    """Give the code to every rule."""
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code=code, error_message=code.sentence)
            for _ in request.creations
        ]
    )


CREATE_ACLS = Api(
    key=30,
    request=CreateAclsRequest,
    response=CreateAclsResponse,
    versions=range(4),
    flexible=2,
    refuse=refuse,
    items=(Items("creations", "results"),),
)
