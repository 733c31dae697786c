"""The lines of the audit file."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from rookery.model.acl import PatternType
from rookery.security.access import AclResource, Operation
from rookery.security.acl import AclBinding, PermissionType
from rookery.security.aclrules import AclDecision, AclReason, ProtectedResource
from rookery.security.audit import (
    MAX_TEXT,
    AuditKind,
    AuditRecord,
    AuditVerdict,
    verdict_of,
)

RULE = AclBinding(
    AclResource.TOPIC,
    PatternType.PREFIXED,
    "ord",
    "User:*",
    "*",
    Operation.ALL,
    PermissionType.DENY,
)
DENIAL = AuditRecord(
    time=1_700_000_000_123,
    kind=AuditKind.ACCESS,
    principal="User:alice",
    host="10.0.0.1",
    listener="external",
    decision=AuditVerdict.DENIED,
    api="Produce",
    resource=ProtectedResource(AclResource.TOPIC, "orders"),
    operation=Operation.WRITE,
    rule=RULE,
    reason=AclReason.DENIED.value,
)


def test_a_denial_is_one_line_of_json() -> None:
    assert json.loads(DENIAL.to_json()) == {
        "time": "2023-11-14T22:13:20.123Z",
        "kind": "access",
        "principal": "User:alice",
        "host": "10.0.0.1",
        "listener": "external",
        "api": "Produce",
        "resource": {"type": "TOPIC", "name": "orders"},
        "operation": "WRITE",
        "decision": "denied",
        "rule": {
            "permission": "DENY",
            "principal": "User:*",
            "host": "*",
            "operation": "ALL",
            "type": "TOPIC",
            "pattern": "PREFIXED",
            "name": "ord",
        },
        "reason": "a rule denies it",
    }
    assert "\n" not in DENIAL.to_json()


def test_what_does_not_apply_is_left_out() -> None:
    login = AuditRecord(
        time=0,
        kind=AuditKind.LOGIN,
        principal="User:alice",
        host="10.0.0.1",
        listener="external",
        decision=AuditVerdict.ALLOWED,
    )

    assert login.to_json() == (
        '{"time":"1970-01-01T00:00:00.000Z","kind":"login","principal":"User:alice",'
        '"host":"10.0.0.1","listener":"external","decision":"allowed"}'
    )


@given(st.text(max_size=3 * MAX_TEXT), st.text(max_size=3 * MAX_TEXT))
def test_no_name_can_break_a_line_or_make_it_long(principal: str, name: str) -> None:
    record = AuditRecord(
        time=1,
        kind=AuditKind.ACCESS,
        principal=principal,
        host="10.0.0.1",
        listener="external",
        decision=AuditVerdict.DENIED,
        resource=ProtectedResource(AclResource.GROUP, name),
    )

    line = record.to_json()

    assert line.isascii()
    assert line.isprintable()
    assert len(line) < 2 * 12 * (MAX_TEXT + 1) + 500
    read = json.loads(line)
    if len(principal) <= MAX_TEXT:
        assert read["principal"].encode("utf-16", "surrogatepass") == principal.encode(
            "utf-16", "surrogatepass"
        )


def test_a_denial_that_is_not_enforced_has_its_own_result() -> None:
    allowed = AclDecision(allowed=True, rule=None, reason=AclReason.OPEN)
    denied = AclDecision(allowed=False, rule=None, reason=AclReason.NOT_ALLOWED)

    assert verdict_of(allowed, is_enforced=True) is AuditVerdict.ALLOWED
    assert verdict_of(allowed, is_enforced=False) is AuditVerdict.ALLOWED
    assert verdict_of(denied, is_enforced=True) is AuditVerdict.DENIED
    assert verdict_of(denied, is_enforced=False) is AuditVerdict.WOULD_DENY
