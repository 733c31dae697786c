"""Random rules and requests over few names, so that many match; and a naive decision as oracle."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Final, NamedTuple

from hypothesis import strategies as st

from rookery.model.acl import PatternType
from rookery.security.access import AclResource, Operation
from rookery.security.acl import AclBinding, PermissionType
from rookery.security.aclrules import ProtectedResource

SUPER_USER: Final = "User:root"
PRINCIPALS: Final = ("User:alice", "User:bob", SUPER_USER)
HOSTS: Final = ("10.0.0.1", "10.0.0.2")

POOL: Final = [
    AclBinding(*fields)
    for fields in product(
        (AclResource.TOPIC, AclResource.GROUP),
        (PatternType.LITERAL, PatternType.PREFIXED),
        ("a", "ab", "abc", "*", "hard"),
        ("User:alice", "User:*", "Group:alice"),
        (HOSTS[0], "*"),
        (
            Operation.ALL,
            Operation.READ,
            Operation.DESCRIBE,
            Operation.ALTER_CONFIGS,
            Operation.CREATE,
        ),
        PermissionType,
    )
]
"""Every rule that random cases choose from: few names, so that rules meet."""
rules: Final = st.sampled_from(POOL)


class Question(NamedTuple):
    """One decision to make."""

    principal: str
    host: str
    operation: Operation
    resource: ProtectedResource


GRID: Final = [
    Question(principal, host, operation, ProtectedResource(AclResource.TOPIC, name))
    for principal, host, operation, name in product(
        PRINCIPALS,
        HOSTS,
        (Operation.READ, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
        ("a", "ab", "abcd", "b", "*", "*x"),
    )
]
"""Every question that is asked of the rules."""


def covers(rule: AclBinding, resource: ProtectedResource) -> bool:
    if rule.resource_type != resource.type:
        return False
    if rule.pattern_type is PatternType.PREFIXED:
        return resource.name.startswith(rule.name)
    return rule.name in (resource.name, "*")


def implied(rule: AclBinding) -> set[str]:
    names = {rule.operation.name}
    if rule.operation is Operation.ALL:
        names |= {operation.name for operation in Operation}
    if rule.permission is PermissionType.ALLOW:
        if rule.operation.name in {"READ", "WRITE", "DELETE", "ALTER"}:
            names |= {"DESCRIBE"}
        if rule.operation.name == "ALTER_CONFIGS":
            names |= {"DESCRIBE_CONFIGS"}
    return names


def is_allowed(bindings: Iterable[AclBinding], question: Question, *, is_open: bool) -> bool:
    """Decide by reading all rules, as the documentation of Kafka describes it."""
    if question.principal == SUPER_USER:
        return True
    covering = [rule for rule in bindings if covers(rule, question.resource)]
    verdicts = {
        rule.permission
        for rule in covering
        if rule.principal in (question.principal, "User:*")
        and rule.host in (question.host, "*")
        and question.operation.name in implied(rule)
    }
    if PermissionType.DENY in verdicts:
        return False
    return PermissionType.ALLOW in verdicts or (is_open and not covering)
