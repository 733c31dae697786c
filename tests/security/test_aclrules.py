"""The decision that a set of access rules makes."""

from __future__ import annotations

import inspect
import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from rookery.model.acl import PatternType
from rookery.security import aclrules
from rookery.security.access import AclResource, Operation
from rookery.security.acl import AclBinding, AclFilter, PermissionType
from rookery.security.aclrules import AclReason, AclRules, ProtectedResource
from tests.security.aclcases import GRID, SUPER_USER, is_allowed, rules

TOPIC = AclResource.TOPIC


def rule(
    text: str, *, host: str = "*", type_: AclResource = TOPIC, name: str | None = None
) -> AclBinding:
    """Make a rule from `ALLOW User:a READ literal name`."""
    permission, principal, operation, pattern_type, pattern = text.split()
    return AclBinding(
        type_,
        PatternType[pattern_type.upper()],
        pattern if name is None else name,
        principal,
        host,
        Operation[operation],
        PermissionType[permission],
    )


def decide(
    bindings: list[AclBinding], operation: Operation, name: str = "orders", **options: Any
) -> tuple[bool, AclBinding | None, AclReason]:
    return AclRules(bindings, super_users=[SUPER_USER], **options).decide(
        "User:alice", "10.0.0.1", operation, ProtectedResource(TOPIC, name)
    )


@pytest.mark.parametrize(
    ("texts", "operation", "expected"),
    [
        ([], Operation.READ, False),
        (["ALLOW User:alice READ literal orders"], Operation.READ, True),
        (["ALLOW User:alice READ literal orders"], Operation.WRITE, False),
        (["ALLOW User:alice READ literal order"], Operation.READ, False),
        (["ALLOW User:alice READ literal orders1"], Operation.READ, False),
        (["ALLOW User:alice READ prefixed order"], Operation.READ, True),
        (["ALLOW User:alice READ prefixed orders"], Operation.READ, True),
        (["ALLOW User:alice READ prefixed orders1"], Operation.READ, False),
        (["ALLOW User:alice READ literal *"], Operation.READ, True),
        (["ALLOW User:alice READ prefixed *"], Operation.READ, False),
        (["ALLOW User:* READ literal orders"], Operation.READ, True),
        (["ALLOW Group:* READ literal orders"], Operation.READ, False),
        (["ALLOW User:bob READ literal orders"], Operation.READ, False),
        (["ALLOW User:alice ALL literal orders"], Operation.ALTER_CONFIGS, True),
        (
            ["ALLOW User:alice ALL literal orders", "DENY User:* READ literal *"],
            Operation.READ,
            False,
        ),
        (
            ["ALLOW User:alice READ literal orders", "DENY User:* ALL prefixed o"],
            Operation.READ,
            False,
        ),
        (
            ["ALLOW User:alice READ literal orders", "DENY User:alice READ literal orders"],
            Operation.READ,
            False,
        ),
        (
            ["ALLOW User:alice READ literal orders", "DENY User:alice WRITE literal orders"],
            Operation.READ,
            True,
        ),
    ],
)
def test_the_rules_that_apply_decide(
    texts: list[str], operation: Operation, expected: bool
) -> None:
    assert decide([rule(text) for text in texts], operation)[0] is expected


@pytest.mark.parametrize("operation", ["READ", "WRITE", "DELETE", "ALTER", "DESCRIBE", "ALL"])
def test_allowing_implies_describe(operation: str) -> None:
    assert decide([rule(f"ALLOW User:alice {operation} literal orders")], Operation.DESCRIBE)[0]


@pytest.mark.parametrize(
    "operation", ["CREATE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "CLUSTER_ACTION"]
)
def test_other_operations_do_not_imply_describe(operation: str) -> None:
    given_rule = rule(f"ALLOW User:alice {operation} literal orders")

    assert not decide([given_rule], Operation.DESCRIBE)[0]


def test_only_altering_settings_implies_reading_them() -> None:
    assert decide(
        [rule("ALLOW User:alice ALTER_CONFIGS literal orders")], Operation.DESCRIBE_CONFIGS
    )[0]
    assert not decide([rule("ALLOW User:alice ALTER literal orders")], Operation.DESCRIBE_CONFIGS)[
        0
    ]


def test_denying_implies_nothing() -> None:
    bindings = [
        rule("ALLOW User:alice DESCRIBE literal orders"),
        rule("DENY User:alice READ literal orders"),
    ]

    assert decide(bindings, Operation.DESCRIBE)[0]
    assert not decide(bindings, Operation.READ)[0]


def test_a_rule_for_an_address_applies_to_no_other() -> None:
    here = rule("ALLOW User:alice READ literal orders", host="10.0.0.1")
    elsewhere = rule("DENY User:alice READ literal orders", host="10.0.0.2")

    assert decide([here, elsewhere], Operation.READ)[0]
    assert not decide([elsewhere], Operation.READ)[0]


def test_a_decision_names_its_rule_and_reason() -> None:
    allow = rule("ALLOW User:alice READ literal orders")
    wide = rule("ALLOW User:alice READ literal *")
    deny = rule("DENY User:* ALL prefixed ord")

    assert decide([wide, allow], Operation.READ) == (True, allow, AclReason.ALLOWED)
    assert decide([wide, allow, deny], Operation.READ) == (False, deny, AclReason.DENIED)
    assert decide([], Operation.READ) == (False, None, AclReason.NOT_ALLOWED)
    assert AclRules([deny], super_users=["User:alice"]).decide(
        "User:alice", "10.0.0.1", Operation.READ, ProtectedResource(TOPIC, "orders")
    ) == (True, None, AclReason.SUPER_USER)


def test_resources_without_rules_can_be_open() -> None:
    other = rule("ALLOW User:bob READ literal orders")

    def decision(name: str) -> tuple[bool, AclReason]:
        allowed, _, reason = decide([other], Operation.READ, name, allow_everyone_if_no_acl=True)
        return allowed, reason

    assert decision("payments") == (True, AclReason.OPEN)
    assert decision("orders") == (False, AclReason.NOT_ALLOWED)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], False),
        (["ALLOW User:alice WRITE literal a"], True),
        (["ALLOW User:alice WRITE prefixed a"], True),
        (["ALLOW User:alice ALL literal a"], True),
        (["ALLOW User:bob WRITE literal a"], False),
        (["ALLOW User:alice READ literal a"], False),
        (["ALLOW User:alice WRITE literal a", "DENY User:alice WRITE literal *"], False),
        (["ALLOW User:alice WRITE literal a", "DENY User:alice ALL literal a"], False),
        (["ALLOW User:alice WRITE literal a", "DENY User:alice WRITE literal b"], True),
        (["ALLOW User:alice WRITE literal ab", "DENY User:* WRITE prefixed a"], False),
        (["ALLOW User:alice WRITE literal ab", "DENY User:* WRITE prefixed abc"], True),
        (["ALLOW User:alice WRITE prefixed ab", "DENY User:* WRITE prefixed a"], False),
        (["ALLOW User:alice WRITE prefixed ab", "DENY User:* WRITE literal ab"], True),
        (["ALLOW User:alice WRITE prefixed a", "DENY User:* WRITE prefixed ab"], True),
        (["ALLOW User:alice WRITE literal *", "DENY User:alice WRITE literal a"], True),
    ],
)
def test_any_resource_of_a_type_is_enough(texts: list[str], expected: bool) -> None:
    index = AclRules([rule(text) for text in texts])

    assert index.allows_any("User:alice", "10.0.0.1", Operation.WRITE, TOPIC) is expected
    assert not index.allows_any("User:alice", "10.0.0.1", Operation.WRITE, AclResource.GROUP)


def test_a_super_user_is_allowed_any_resource() -> None:
    index = AclRules([rule("DENY User:* ALL literal *")], super_users=[SUPER_USER])

    assert index.allows_any(SUPER_USER, "10.0.0.1", Operation.WRITE, TOPIC)


def check_decisions(index: type[AclRules]) -> None:
    """Compare an index with the naive decision over random rules."""

    @settings(max_examples=200, database=None, derandomize=True, phases=[Phase.generate])
    @given(st.lists(rules, max_size=8), st.booleans())
    def compare(bindings: list[AclBinding], is_open: bool) -> None:
        indexed = index(bindings, super_users=[SUPER_USER], allow_everyone_if_no_acl=is_open)
        for question in GRID:
            expected = is_allowed(bindings, question, is_open=is_open)
            assert indexed.decide(*question).allowed is expected, question

    compare()


def test_the_index_decides_like_a_list_of_rules() -> None:
    check_decisions(AclRules)


MUTANTS = {
    "allow before deny": ("if entry.is_deny:", "if entry.is_deny and allowing is None:"),
    "deny ignored": ("if entry.is_deny:", "if entry.is_deny and False:"),
    "prefix too short": ("prefix := name[:length]", "prefix := name[: length - 1]"),
    "prefix as long as the name": ("if length <= len(name)", "if length < len(name)"),
    "host ignored": ("entry.host is None or entry.host == host", "True"),
    "everyone forgotten": ("in (principal, ANYONE):", "in (principal,):"),
    "wildcard forgotten": ("if WILDCARD in literals", "if False and WILDCARD in literals"),
    "denying implies": ("elif not is_deny and rule", "elif rule"),
    "super users forgotten": ("if principal in self._super_users:", "if False:"),
    "covered but open": ("self._is_open and not is_covered", "self._is_open"),
    "answers mixed up": ("key = (principal, host, ", 'key = (principal, "", '),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_comparison_finds_a_planted_bug(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, wrong = MUTANTS[name]
    source = inspect.getsource(aclrules)
    assert source.count(right) == 1
    mutant = ModuleType("mutant")
    monkeypatch.setitem(sys.modules, "mutant", mutant)
    exec(source.replace(right, wrong), mutant.__dict__)  # noqa: S102 (our own source)

    with pytest.raises(AssertionError):
        check_decisions(mutant.AclRules)


@settings(max_examples=50)
@given(
    st.lists(rules, max_size=8),
    st.lists(rules, max_size=8),
    st.lists(st.lists(rules, max_size=4), max_size=4),
)
def test_changes_lead_to_the_same_rules_as_building_them(
    first: list[AclBinding], gone: list[AclBinding], added: list[list[AclBinding]]
) -> None:
    start = AclRules(first, super_users=[SUPER_USER])
    before = list(start)
    changed = start
    expected = set(first)
    for batch in added:
        removed = [*gone[: len(batch)], *first[: len(batch)]]
        changed = changed.change(add=batch, remove=removed)
        expected = (expected - set(removed)) | set(batch)

    rebuilt = AclRules(expected, super_users=[SUPER_USER])
    assert list(start) == before
    assert list(changed) == list(rebuilt) == sorted(expected)
    assert len(changed) == len(expected)
    for question in GRID:
        assert changed.decide(*question).allowed is rebuilt.decide(*question).allowed
        principal, host, operation, resource = question
        assert changed.allows_any(principal, host, operation, resource.type) is rebuilt.allows_any(
            principal, host, operation, resource.type
        )


def test_removing_a_rule_keeps_the_others_of_its_resource() -> None:
    allow, deny = rule("ALLOW User:* READ literal a"), rule("DENY User:alice READ literal a")
    third = rule("ALLOW User:alice WRITE literal a")
    index = AclRules([allow, deny, third]).change(remove=[third])

    assert set(index) == {deny, allow}
    assert third not in index
    assert deny in index
    assert not index.decide(
        "User:alice", "1.1.1.1", Operation.READ, ProtectedResource(TOPIC, "a")
    ).allowed


def test_the_memo_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aclrules, "_MAX_MEMO", 3)
    index = AclRules()

    for number in range(10):
        index.decide("User:a", "h", Operation.READ, ProtectedResource(TOPIC, f"t{number}"))
        assert len(index._memo) <= 3
    index.decide("User:a", "h", Operation.READ, ProtectedResource(TOPIC, "x" * 250))
    assert all(len(resource.name) < 250 for *_, resource in index._memo)


def test_rules_are_selected_by_filter() -> None:
    first, second = rule("ALLOW User:a READ prefixed b"), rule("ALLOW User:a READ literal c")
    index = AclRules([first, second])

    assert index.select(AclFilter()) == [second, first]
    assert index.select(AclFilter(name="c")) == [second]
    assert index.select(AclFilter(name="bx", pattern_type=PatternType.MATCH)) == [first]
