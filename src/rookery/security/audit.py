"""The audit record of logins, denials and changes: one line of JSON for each event.

A record has a fixed set of fields and no free text, so no request body, password or token can get
into it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from rookery.security.access import Operation
from rookery.security.acl import AclBinding
from rookery.security.aclrules import AclDecision, ProtectedResource

MAX_TEXT: Final = 1_024
"""The maximum length of a text in characters; clients choose names and can make them long."""

_CUT: Final = "…"
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


class QuotaEdit(NamedTuple):
    """A change of the limits of one entity."""

    entity: Mapping[str, str | None]
    """Names by type; None is the default of a type."""
    values: Mapping[str, float | None]
    """The new limits by key; None for a limit that is removed."""


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
    quota: QuotaEdit | None = None
    """The quota that was changed."""
    reason: str | None = None
    """One of a fixed set of texts, never text from a request."""

    def to_json(self) -> str:
        """Return the record as one line, without the line feed."""
        fields: dict[str, object] = {
            "time": _format_time(self.time),
            "kind": self.kind,
            "principal": cut_text(self.principal),
            "host": cut_text(self.host),
            "listener": cut_text(self.listener),
            "api": self.api,
            "resource": None if self.resource is None else _resource_fields(self.resource),
            "operation": None if self.operation is None else self.operation.name,
            "decision": self.decision,
            "rule": None if self.rule is None else _rule_fields(self.rule),
            "quota": None if self.quota is None else _quota_fields(self.quota),
            "reason": self.reason,
        }
        present = {key: value for key, value in fields.items() if value is not None}
        # ASCII alone: no name can break a line, or deceive a terminal.
        return json.dumps(present, separators=(",", ":"))


class RequestOutcome(StrEnum):
    """The outcome of a request that passed a proxy."""

    DONE = "done"
    """Its response has no error."""
    FAILED = "failed"
    """Its response has errors."""
    SENT = "sent"
    """It has no response."""
    UNKNOWN = "unknown"
    """The connection broke before the response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """One request that passed a proxy."""

    time: int
    """Milliseconds since 1970-01-01 UTC."""
    cluster: str
    """The virtual cluster."""
    principal: str
    host: str
    client_id: str
    api: str
    version: int
    resources: Mapping[str, Sequence[str]]
    """Names by the kind of resource."""
    outcome: RequestOutcome
    errors: tuple[str, ...] = ()
    """The names of the error codes in the response."""

    def to_json(self) -> str:
        """Return the record as one line, without the line feed."""
        fields: dict[str, object] = {
            "time": _format_time(self.time),
            "kind": "request",
            "cluster": self.cluster,
            "principal": cut_text(self.principal),
            "host": cut_text(self.host),
            "client_id": cut_text(self.client_id),
            "api": self.api,
            "version": self.version,
            "resources": {
                kind: [cut_text(name) for name in names] for kind, names in self.resources.items()
            },
            "outcome": self.outcome,
            "errors": list(self.errors),
        }
        return json.dumps(fields, separators=(",", ":"))


def dropped_line(time: int, count: int) -> str:
    """Return the line that stands for records that were dropped, without the line feed."""
    fields = {"time": _format_time(time), "kind": "dropped", "count": count}
    return json.dumps(fields, separators=(",", ":"))


def cut_text(text: str) -> str:
    """Return a text of limited length; records that wait hold no more of a client's name."""
    if len(text) <= MAX_TEXT or (len(text) == MAX_TEXT + 1 and text.endswith(_CUT)):
        return text
    return f"{text[:MAX_TEXT]}{_CUT}"


def verdict_of(decision: AclDecision, *, is_enforced: bool) -> AuditVerdict:
    """Return the outcome of a decision, depending on whether denials are enforced."""
    if decision.allowed:
        return AuditVerdict.ALLOWED
    return AuditVerdict.DENIED if is_enforced else AuditVerdict.WOULD_DENY


def _format_time(time: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=time)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _resource_fields(resource: ProtectedResource) -> dict[str, str]:
    return {"type": resource.type.name, "name": cut_text(resource.name)}


def _quota_fields(quota: QuotaEdit) -> dict[str, object]:
    entity = {kind: None if name is None else cut_text(name) for kind, name in quota.entity.items()}
    return {"entity": entity, "values": dict(quota.values)}


def _rule_fields(rule: AclBinding) -> dict[str, str]:
    return {
        "permission": rule.permission.name,
        "principal": cut_text(rule.principal),
        "host": cut_text(rule.host),
        "operation": rule.operation.name,
        "type": rule.resource_type.name,
        "pattern": rule.pattern_type.name,
        "name": cut_text(rule.name),
    }
