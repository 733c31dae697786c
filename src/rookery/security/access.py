"""Which resources a request touches, and which operation its client needs on each.

`service/access/accesstable.py` has the rows of each API; access control and its documentation use
them:

    PRODUCE.key: (named(TOPIC, WRITE), named(TRANSACTIONAL_ID, WRITE))

A client needs all rows whose version and condition match the request. Rows do not define how the
names are found: the kinds of the message's fields determine that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from typing import Any


class Operation(IntEnum):
    """Operations of access rules, numbered as in Kafka."""

    ALL = 2
    """In a rule: every operation. No request needs it."""
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclResource(IntEnum):
    """Types of resources that access rules protect, numbered as in Kafka."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AccessScope(Enum):
    """The resources of its type that a row covers."""

    NAMED = "named"
    """Each one that the request names; broker settings count as the cluster."""
    LISTED = "listed"
    """Each one that the response lists, requested by name or not."""
    ANY = "any"
    """Any single one is sufficient."""
    WHOLE = "whole"
    """The cluster itself, for the request as a whole."""


class Denial(Enum):
    """The response if an operation is denied."""

    REFUSE = "refuse"
    """An error for the denied resource; the others are served."""
    REFUSE_REQUEST = "refuse request"
    """An error for the whole request: none of it is executed."""
    OMIT = "omit"
    """The resource is omitted from the response."""
    REDACT = "redact"
    """The request is served; the response omits the details that need the operation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One row: an operation on resources of one type."""

    resource: AclResource
    operation: Operation
    scope: AccessScope
    denial: Denial
    or_on_cluster: Operation | None = None
    """An operation on the cluster that is sufficient instead, for all the resources together."""
    or_on_owner: Operation | None = None
    """An operation on the user that owns a resource that is sufficient instead."""
    is_own_exempt: bool = False
    """Whether clients need no permission for themselves and for what is their own."""
    versions: range | None = None
    """The request's versions to which the row applies; None for all."""
    when: Callable[[Any], bool] | None = None
    """Decides whether the row applies to a request; its docstring documents when. None: always."""
    needs_name: bool = False
    """Whether a request that names no resource is refused like one that names a denied resource."""
    is_for_missing: bool = False
    """Whether the row applies only to topics that do not exist and would be created."""

    def applies(self, version: int, request: object) -> bool:
        """Whether the client of a request needs the operation."""
        if self.versions is not None and version not in self.versions:
            return False
        return self.when is None or self.when(request)


def named(
    resource: AclResource,
    operation: Operation,
    *,
    denial: Denial = Denial.REFUSE,
    or_on_cluster: Operation | None = None,
    versions: range | None = None,
    when: Callable[[Any], bool] | None = None,
) -> Access:
    """Return the row for every resource of a type that the request names."""
    return Access(
        resource=resource,
        operation=operation,
        scope=AccessScope.NAMED,
        denial=denial,
        or_on_cluster=or_on_cluster,
        versions=versions,
        when=when,
    )


def needing_name(row: Access) -> Access:
    """Return the row that also refuses requests without any name."""
    return replace(row, needs_name=True)


def created(*, when: Callable[[Any], bool] | None = None) -> Access:
    """Return the row for topics that do not exist and that the request creates by naming them."""
    return Access(
        resource=AclResource.TOPIC,
        operation=Operation.CREATE,
        scope=AccessScope.NAMED,
        denial=Denial.REFUSE,
        or_on_cluster=Operation.CREATE,
        when=when,
        is_for_missing=True,
    )


def acting_for(operation: Operation, *, when: Callable[[Any], bool]) -> Access:
    """Return the row for a user that the client acts for, unless that is the client itself."""
    return Access(
        resource=AclResource.USER,
        operation=operation,
        scope=AccessScope.NAMED,
        denial=Denial.REFUSE_REQUEST,
        when=when,
        is_own_exempt=True,
    )


def listed(
    resource: AclResource,
    operation: Operation,
    *,
    denial: Denial = Denial.OMIT,
    or_on_cluster: Operation | None = None,
    or_on_owner: Operation | None = None,
    is_own_exempt: bool = False,
) -> Access:
    """Return the row for every resource of a type that the answer lists."""
    return Access(
        resource=resource,
        operation=operation,
        scope=AccessScope.LISTED,
        denial=denial,
        or_on_cluster=or_on_cluster,
        or_on_owner=or_on_owner,
        is_own_exempt=is_own_exempt,
    )


def any_of(
    resource: AclResource,
    operation: Operation,
    *,
    or_on_cluster: Operation | None = None,
    when: Callable[[Any], bool] | None = None,
) -> Access:
    """Return the row for a request that needs an operation on any resource of a type."""
    return Access(
        resource=resource,
        operation=operation,
        scope=AccessScope.ANY,
        denial=Denial.REFUSE_REQUEST,
        or_on_cluster=or_on_cluster,
        when=when,
    )


def cluster(
    operation: Operation,
    *,
    denial: Denial = Denial.REFUSE_REQUEST,
    or_on_cluster: Operation | None = None,
    versions: range | None = None,
    when: Callable[[Any], bool] | None = None,
) -> Access:
    """Return the row for a request that touches the cluster itself."""
    return Access(
        resource=AclResource.CLUSTER,
        operation=operation,
        scope=AccessScope.WHOLE,
        denial=denial,
        or_on_cluster=or_on_cluster,
        versions=versions,
        when=when,
    )
