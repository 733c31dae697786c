"""The audit record of logins, denials and changes: one line of JSON for each event.

A record has a fixed set of fields and no free text, so no request body, password or token can get
into it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from rookery.security.access import Operation
from rookery.security.acl import AclBinding
from rookery.security.aclrules import AclDecision, ProtectedResource

MAX_TEXT: Final = 1_024
"""The maximum length of a text in characters; clients choose names and can make them long."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class AuditKind(StrEnum):
    """The kinds of events."""

    LOGIN = "login"
    """A client authenticated itself, or failed to."""
    ACCESS = "access"
    """An operation was allowed or denied by the rules."""
    CHANGE = "change"
    """An administrative change was made or refused."""


class AuditVerdict(StrEnum):
    """The outcome of an event."""

    ALLOWED = "allowed"
    DENIED = "denied"
    WOULD_DENY = "would deny"
    """Allowed, because rules are only tried out (`authorizer = log`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """One event. What does not apply to it is None."""

    time: int
    """Milliseconds since 1970-01-01 UTC."""
    kind: AuditKind
    principal: str
    """As in `User:alice`. For a failed login, the name that was claimed."""
    host: str
    """The client's address."""
    listener: str
    decision: AuditVerdict
    api: str | None = None
    """The name of the API, as in `Produce`."""
    resource: ProtectedResource | None = None
    operation: Operation | None = None
    rule: AclBinding | None = None
    """The rule that was decisive, if one was."""
    reason: str | None = None
    """One of a fixed set of texts, never text from a request."""

    def to_json(self) -> str:
        """Return the record as one line, without the line feed."""
        fields: dict[str, object] = {
            "time": _format_time(self.time),
            "kind": self.kind,
            "principal": _cut(self.principal),
            "host": _cut(self.host),
            "listener": _cut(self.listener),
            "api": self.api,
            "resource": None if self.resource is None else _resource_fields(self.resource),
            "operation": None if self.operation is None else self.operation.name,
            "decision": self.decision,
            "rule": None if self.rule is None else _rule_fields(self.rule),
            "reason": self.reason,
        }
        present = {key: value for key, value in fields.items() if value is not None}
        # ASCII alone: no name can break a line, or deceive a terminal.
        return json.dumps(present, separators=(",", ":"))


def dropped_line(time: int, count: int) -> str:
    """Return the line that stands for records that were dropped, without the line feed."""
    fields = {"time": _format_time(time), "kind": "dropped", "count": count}
    return json.dumps(fields, separators=(",", ":"))


def verdict_of(decision: AclDecision, *, is_enforced: bool) -> AuditVerdict:
    """Return the outcome of a decision, depending on whether denials are enforced."""
    if decision.allowed:
        return AuditVerdict.ALLOWED
    return AuditVerdict.DENIED if is_enforced else AuditVerdict.WOULD_DENY


def _format_time(time: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=time)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _resource_fields(resource: ProtectedResource) -> dict[str, str]:
    return {"type": resource.type.name, "name": _cut(resource.name)}


def _rule_fields(rule: AclBinding) -> dict[str, str]:
    return {
        "permission": rule.permission.name,
        "principal": _cut(rule.principal),
        "host": _cut(rule.host),
        "operation": rule.operation.name,
        "type": rule.resource_type.name,
        "pattern": rule.pattern_type.name,
        "name": _cut(rule.name),
    }


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"
