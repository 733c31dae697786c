"""The rules in force, and the decisions by them for one client.

`acls` enforces the rules. `log` serves everything, but counts and logs what `acls` would deny, so
that an operator can complete the rules before enforcing them.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

from rookery import metrics
from rookery.net.session import ClientSession
from rookery.security.access import AclResource, Operation
from rookery.security.acl import CLUSTER_NAME, AclBinding, format_host
from rookery.security.aclrules import AclRules, ProtectedResource
from rookery.service.audit.auditlog import AuditLog

log = logging.getLogger(__name__)

DENIALS: Final = metrics.REGISTRY.counters(
    "rookery_access_denials_total",
    "Operations that the access rules deny; with the authorizer `log` they are served anyway.",
    ("resource", "operation"),
)
_CLUSTER: Final = ProtectedResource(AclResource.CLUSTER, CLUSTER_NAME)
_MAX_GRANTS: Final = 8_192
"""How many permissions are remembered; clients choose the names, whose length is limited, too."""
_MAX_NOTED: Final = 10_000
"""How many different denials are logged; clients choose the names."""
_MAX_NAME: Final = 249
"""How much of a name is logged and remembered: a topic's has no more characters."""


def permission_of(operation: Operation, resource_type: AclResource) -> int:
    """Return a number for an operation on a type of resource."""
    return resource_type.value << 8 | operation.value


class RuleSource(Protocol):
    """Where the rules come from."""

    def stamp(self) -> Hashable:
        """Return a value that changes with the rules."""

    def rules(self) -> Iterable[AclBinding]:
        """Return all rules."""


@dataclass(frozen=True, slots=True)
class AuthorizerSettings:
    """How the rules are applied."""

    super_users: tuple[str, ...] = ()
    allow_everyone_if_no_acl: bool = False
    is_enforced: bool = True
    """Whether denied requests are refused; otherwise they are only logged."""


class AccessPolicy:
    """Decides by the current rules."""

    def __init__(self, source: RuleSource, settings: AuthorizerSettings) -> None:
        self.settings = settings
        self.super_users = frozenset(settings.super_users)
        self._source = source
        self._noted: set[tuple[str, Operation, ProtectedResource]] = set()
        self.audit: AuditLog | None = None
        """Records denials; None if there is no audit file."""
        self.stamp: Hashable = None
        """Changes with the rules."""
        self._granted: set[tuple[str | None, str, int, str]] = set()
        self._current = AclRules(
            super_users=settings.super_users,
            allow_everyone_if_no_acl=settings.allow_everyone_if_no_acl,
        )

    @property
    def rules(self) -> AclRules:
        """The rules, as the source has them now."""
        self.refresh()
        return self._current

    def refresh(self) -> Hashable:
        """Take over changes of the rules; return the stamp of those in force."""
        stamp = self._source.stamp()
        if stamp != self.stamp:
            new = dict.fromkeys(self._source.rules())
            gone = [rule for rule in self._current if rule not in new]
            # A new set also discards the remembered decisions.
            self._current = self._current.change(add=new, remove=gone)
            self._granted.clear()
            self.stamp = stamp
        return stamp

    def grants(self, session: ClientSession, permission: int, name: str) -> bool:
        """Return whether a client has a permission (`permission_of`), by the rules of now.

        It notes nothing, and remembers what is allowed.
        """
        key = session.principal, session.host, permission, name
        if key in self._granted:
            return True
        operation, resource_type = Operation(permission & 0xFF), AclResource(permission >> 8)
        if not self.client(session).has(operation, resource_type, name):
            return False
        if len(name) <= _MAX_NAME:
            if len(self._granted) >= _MAX_GRANTS:
                self._granted.clear()
            self._granted.add(key)
        return True

    def client(self, session: ClientSession) -> AccessClient:
        """Return the decisions for a client, by the rules of now."""
        return AccessClient(self, session.principal or "", _host(session.host), session.listener)

    def note(self, principal: str, operation: Operation, resource: ProtectedResource) -> None:
        """Count a denial, and log it once."""
        DENIALS.labels(resource.type.name.lower(), operation.name.lower()).inc()
        name = resource.name if len(resource.name) <= _MAX_NAME else resource.name[:_MAX_NAME]
        key = principal, operation, ProtectedResource(resource.type, name)
        if key in self._noted or len(self._noted) >= _MAX_NOTED:
            return
        self._noted.add(key)
        log.log(
            logging.INFO if self.settings.is_enforced else logging.WARNING,
            "%s may not %s %s %r%s",
            principal,
            operation.name,
            resource.type.name.lower(),
            name,
            "" if self.settings.is_enforced else " (served: the authorizer only logs)",
        )


class AccessClient:
    """The decisions for one client, for one request."""

    __slots__ = ("_policy", "_rules", "host", "listener", "principal")

    def __init__(self, policy: AccessPolicy, principal: str, host: str, listener: str = "") -> None:
        self._policy = policy
        self._rules = policy.rules
        self.principal = principal
        self.host = host
        self.listener = listener

    @property
    def is_super_user(self) -> bool:
        """Whether no rule applies to the client."""
        return self.principal in self._policy.super_users

    def has(self, operation: Operation, resource_type: AclResource, name: str) -> bool:
        """Return what the rules say, without a note of it."""
        resource = ProtectedResource(resource_type, name)
        return self._rules.decide(self.principal, self.host, operation, resource).allowed

    def has_on_cluster(self, operation: Operation | None) -> bool:
        """Return what the rules say about the cluster; False for no operation."""
        return operation is not None and self.has(operation, *_CLUSTER)

    def has_any(self, operation: Operation, resource_type: AclResource) -> bool:
        """Return whether the rules allow an operation on at least one resource of a type."""
        return self._rules.allows_any(self.principal, self.host, operation, resource_type)

    def may(self, operation: Operation, resource_type: AclResource, name: str) -> bool:
        """Return what the rules say, and note a denial."""
        is_allowed = self.has(operation, resource_type, name)
        if not is_allowed:
            self.note_denial(operation, resource_type, name)
        return is_allowed

    def note_denial(
        self, operation: Operation, resource_type: AclResource, name: str = CLUSTER_NAME
    ) -> None:
        """Count a denial, log it and write it to the audit file."""
        resource = ProtectedResource(resource_type, name)
        self._policy.note(self.principal, operation, resource)
        if self._policy.audit is not None:
            self._record_denial(self._policy.audit, operation, resource)

    def _record_denial(
        self, audit: AuditLog, operation: Operation, resource: ProtectedResource
    ) -> None:
        decision = self._rules.decide(self.principal, self.host, operation, resource)
        client = ClientSession(self.principal, self.listener, self.host)
        is_enforced = self._policy.settings.is_enforced
        audit.record_denial(client, operation, resource, decision.rule, is_enforced=is_enforced)


@lru_cache(maxsize=10_000)
def _host(address: str) -> str:
    try:
        return format_host(address)
    except ValueError:
        return address
