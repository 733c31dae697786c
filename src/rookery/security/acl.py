"""Access rules (ACLs) and filters over them, with Kafka's numbers and Kafka's checks.

A rule binds a principal, a client's address, an operation and a verdict to a pattern of resources.
`security/aclrules.py` decides by them.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

from rookery.errors import ApiError, ErrorCode
from rookery.model.acl import ANY, WILDCARD, PatternType, StoredAcl, StoredAclFilter
from rookery.security.access import AclResource, Operation
from rookery.wire.messages.create_acls import AclCreation
from rookery.wire.messages.delete_acls import DeleteAclsFilter
from rookery.wire.messages.describe_acls import DescribeAclsRequest

ANYONE: Final = "User:*"
"""The principal of rules that apply to every user."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The only name that a resource of type cluster can have."""

_Number = TypeVar("_Number", bound=IntEnum)


class PermissionType(IntEnum):
    """The verdict of a rule."""

    DENY = 2
    ALLOW = 3


OPERATIONS: Final[Mapping[AclResource, frozenset[Operation]]] = {
    AclResource.TOPIC: frozenset(
        {
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    AclResource.GROUP: frozenset(
        {
            Operation.READ,
            Operation.DELETE,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    AclResource.CLUSTER: frozenset(
        {
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        }
    ),
    AclResource.TRANSACTIONAL_ID: frozenset(
        {Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT}
    ),
    AclResource.DELEGATION_TOKEN: frozenset({Operation.DESCRIBE}),
    AclResource.USER: frozenset({Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS}),
}
"""The operations that requests can need on each type of resource; others never have an effect."""


@dataclass(frozen=True, slots=True, order=True)
class AclBinding:
    """One rule. Rules with equal fields are the same rule."""

    resource_type: AclResource
    pattern_type: PatternType
    name: str
    principal: str
    """As in `User:alice`."""
    host: str
    """A client's address in the form of `format_host`, or `*`."""
    operation: Operation
    permission: PermissionType

    @classmethod
    def from_stored(cls, stored: StoredAcl) -> AclBinding:
        """Return the rule of Kafka's numbers.

        Raises:
            ValueError: a number has no meaning.
        """
        return cls(
            AclResource(stored.resource_type),
            PatternType(stored.pattern_type),
            stored.resource_name,
            stored.principal,
            stored.host,
            Operation(stored.operation),
            PermissionType(stored.permission),
        )

    def to_stored(self) -> StoredAcl:
        """Return the rule with Kafka's numbers."""
        return StoredAcl(
            int(self.resource_type),
            int(self.pattern_type),
            self.name,
            self.principal,
            self.host,
            int(self.operation),
            int(self.permission),
        )

    def __str__(self) -> str:
        """Describe the rule in one readable line."""
        pattern = "" if self.pattern_type is PatternType.LITERAL else "prefix "
        host = "" if self.host == WILDCARD else f" from {self.host}"
        return (
            f"{self.permission.name} {self.principal}{host} {self.operation.name} "
            f"on {self.resource_type.name} {pattern}{self.name!r}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """A choice of rules; None matches everything."""

    resource_type: AclResource | None = None
    pattern_type: PatternType = PatternType.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: PermissionType | None = None

    def to_stored(self) -> StoredAclFilter:
        """Return the filter with Kafka's numbers."""
        return StoredAclFilter(
            int(self.resource_type or ANY),
            int(self.pattern_type),
            self.name,
            self.principal,
            self.host,
            int(self.operation or ANY),
            int(self.permission or ANY),
        )


def read_creation(creation: AclCreation) -> AclBinding:
    """Convert one item of CreateAcls to a rule, with Kafka's checks.

    Kafka accepts rules that can never have an effect; `find_mistake` finds those.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    resource_type = _read(AclResource, creation.resource_type, "resourceType")
    if resource_type is AclResource.CLUSTER and creation.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not creation.resource_name:
        raise _invalid("Invalid empty resource name")
    pattern_type = _read(PatternType, creation.resource_pattern_type, "patternType")
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {pattern_type.name}")
    operation = _read(Operation, creation.operation, "operation")
    permission = _read(PermissionType, creation.permission_type, "permissionType")
    if ":" not in creation.principal:
        raise _invalid(
            f"Could not parse principal from `{creation.principal}` (no colon is present "
            "separating the principal type from the principal name)"
        )
    return AclBinding(
        resource_type,
        pattern_type,
        creation.resource_name,
        creation.principal,
        creation.host,
        operation,
        permission,
    )


def read_filter(message: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Convert the filter of DescribeAcls, or one of those of DeleteAcls.

    Raises:
        ApiError: INVALID_REQUEST, if a number has no meaning.
    """
    return AclFilter(
        resource_type=_read_any(AclResource, message.resource_type_filter, "resourceType"),
        pattern_type=_read(PatternType, message.pattern_type_filter, "patternType"),
        name=message.resource_name_filter,
        principal=message.principal_filter,
        host=message.host_filter,
        operation=_read_any(Operation, message.operation, "operation"),
        permission=_read_any(PermissionType, message.permission_type, "permissionType"),
    )


def find_mistake(rule: AclBinding) -> str | None:
    """Return why a rule, although valid, cannot do what its author wants; None if it can.

    `kafka-acls` refuses the first of these; Kafka itself accepts them all.
    """
    operations = OPERATIONS[rule.resource_type]
    if rule.operation is not Operation.ALL and rule.operation not in operations:
        names = ", ".join(sorted(operation.name for operation in operations))
        return f"{rule.operation.name} does not exist on {rule.resource_type.name}, only {names}"
    if rule.pattern_type is PatternType.PREFIXED and rule.name == WILDCARD:
        return "the prefix '*' covers names that begin with an asterisk; use the literal name '*'"
    kind, _, name = rule.principal.partition(":")
    if not kind or not name:
        return f"the principal {rule.principal!r} is not of the form Type:name"
    if name == WILDCARD and rule.principal != ANYONE:
        return f"{rule.principal!r} matches only a principal of that name; use {ANYONE!r}"
    return None if rule.host == WILDCARD else _find_host_mistake(rule.host)


def format_host(address: str) -> str:
    """Return an IP address in the form that rules use, which is that of Java.

    IPv6 addresses are written in full (`0:0:0:0:0:0:0:1`); IPv4 addresses mapped into IPv6 are
    written as IPv4.

    Raises:
        ValueError: it is not an IP address.
    """
    parsed = ipaddress.ip_address(address)
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    words = ":".join(f"{word:x}" for word in struct.unpack(">8H", parsed.packed))
    return words if parsed.scope_id is None else f"{words}%{parsed.scope_id}"


def _find_host_mistake(host: str) -> str | None:
    try:
        address = format_host(host)
    except ValueError:
        return f"the host {host!r} is not an IP address; host names and networks never match"
    return None if address == host else f"the host {host!r} must be written {address!r}"


def _read(kind: type[_Number], number: int, field: str) -> _Number:
    try:
        return kind(number)
    except ValueError:
        name = "ANY" if number == ANY else f"UNKNOWN ({number})"
        raise _invalid(f"Invalid {field} {name}") from None


def _read_any(kind: type[_Number], number: int, field: str) -> _Number | None:
    return None if number == ANY else _read(kind, number, field)


def _invalid(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, reason)
