"""The access rules (ACLs) of a cluster: list, add and remove them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from rookery.client.connect.connections import Link
from rookery.client.connect.router import Router
from rookery.errors import ApiError, ErrorCode
from rookery.model.acl import StoredAcl
from rookery.security.acl import AclBinding, AclFilter
from rookery.wire.messages.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from rookery.wire.messages.delete_acls import DELETE_ACLS, DeleteAclsFilter, DeleteAclsRequest
from rookery.wire.messages.describe_acls import (
    DESCRIBE_ACLS,
    DescribeAclsRequest,
)

T = TypeVar("T")
F = TypeVar("F", DescribeAclsRequest, DeleteAclsFilter)

_LOWEST: Final = 1
"""The first version with pattern types; without them a prefix would become a literal name."""


class _ResourceRow(Protocol):
    """The fields that resources have in responses."""

    resource_type: int
    resource_name: str
    pattern_type: int


class _AclRow(Protocol):
    """The fields that rules have in responses."""

    principal: str
    host: str
    operation: int
    permission_type: int


class AclAdmin:
    """Describes and changes the access rules of a cluster."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def describe(
        self, choice: AclFilter | None = None, timeout_ms: int | None = None
    ) -> list[AclBinding]:
        """Return the rules that a filter matches, sorted by resource; all without a filter.

        Raises:
            ApiError: for example SECURITY_DISABLED if the cluster has no authorizer.
        """
        request = _write_filter(DescribeAclsRequest, choice or AclFilter())

        async def ask(link: Link, request_ms: int) -> list[AclBinding]:
            version = link.versions.choose(DESCRIBE_ACLS, lowest=_LOWEST)
            answer = await link.call(DESCRIBE_ACLS, version, request, request_ms)
            _check(answer.error_code, "describe rules", answer.error_message)
            return sorted(
                _read_rule(resource, row) for resource in answer.resources for row in resource.acls
            )

        return await self._ask("describe rules", ask, timeout_ms)

    async def create(self, rules: Sequence[AclBinding], timeout_ms: int | None = None) -> None:
        """Add rules; a rule that exists stays as it is.

        Raises:
            ApiError: one was rejected; others may be in force.
        """
        request = CreateAclsRequest(creations=[_creation(rule) for rule in rules])

        async def ask(link: Link, request_ms: int) -> None:
            version = link.versions.choose(CREATE_ACLS, lowest=_LOWEST)
            answer = await link.call(CREATE_ACLS, version, request, request_ms)
            for rule, row in zip(rules, answer.results, strict=True):
                _check(row.error_code, f"add rule {rule}", row.error_message)

        await self._ask("add rules", ask, timeout_ms)

    async def delete(
        self, choices: Iterable[AclFilter], timeout_ms: int | None = None
    ) -> list[AclBinding]:
        """Remove all rules that one of the filters matches, and return them.

        Raises:
            ApiError: a filter was rejected; rules of others may be removed.
        """
        request = DeleteAclsRequest(
            filters=[_write_filter(DeleteAclsFilter, choice) for choice in choices]
        )

        async def ask(link: Link, request_ms: int) -> list[AclBinding]:
            version = link.versions.choose(DELETE_ACLS, lowest=_LOWEST)
            answer = await link.call(DELETE_ACLS, version, request, request_ms)
            removed: set[AclBinding] = set()
            for result in answer.filter_results:
                _check(result.error_code, "remove rules", result.error_message)
                for row in result.matching_acls:
                    _check(row.error_code, "remove a rule", row.error_message)
                    removed.add(_read_rule(row, row))
            return sorted(removed)

        return await self._ask("remove rules", ask, timeout_ms)

    async def _ask(
        self, what: str, ask: Callable[[Link, int], Awaitable[T]], timeout_ms: int | None
    ) -> T:
        deadline = self._router.retrier.deadline(timeout_ms)
        return await self._router.ask_controller(what, ask, deadline)


def exact_filter(rule: AclBinding) -> AclFilter:
    """Return the filter that matches one rule and no other."""
    return AclFilter(
        resource_type=rule.resource_type,
        pattern_type=rule.pattern_type,
        name=rule.name,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission=rule.permission,
    )


def _creation(rule: AclBinding) -> AclCreation:
    return AclCreation(
        resource_type=rule.resource_type,
        resource_name=rule.name,
        resource_pattern_type=rule.pattern_type,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


def _write_filter(message: type[F], choice: AclFilter) -> F:
    wanted = choice.to_stored()
    return message(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.resource_name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )


def _read_rule(resource: _ResourceRow, row: _AclRow) -> AclBinding:
    return AclBinding.from_stored(
        StoredAcl(
            resource.resource_type,
            resource.pattern_type,
            resource.resource_name,
            row.principal,
            row.host,
            row.operation,
            row.permission_type,
        )
    )


def _check(code: ErrorCode, what: str, message: str | None) -> None:
    if code is not ErrorCode.NONE:
        raise ApiError(code, f"{what}: {message or code.sentence}")
