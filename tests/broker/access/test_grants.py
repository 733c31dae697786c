"""Requests that are served without a review get the same answers as with one."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from rookery.broker.call import routes
from rookery.model.acl import PatternType
from rookery.net.session import ClientSession
from rookery.security.access import Access, AclResource, Operation
from rookery.security.acl import AclBinding, PermissionType
from rookery.service.access import grants, guard, policy
from rookery.service.access.grants import GrantPlan, plan_of
from rookery.service.access.guard import Guard
from rookery.service.access.policy import AccessPolicy, AuthorizerSettings
from rookery.service.access.requestnames import names_in, names_reader
from rookery.service.access.verdict import AccessVerdict
from rookery.wire.message import Api, GroupId, Message, TopicId, TopicName, TransactionalId
from rookery.wire.messages.heartbeat import HEARTBEAT, HeartbeatRequest
from rookery.wire.messages.produce import PRODUCE
from tests.broker.access.requests import GROUP, KNOWN, AccessCase, cases
from tests.broker.access.test_guard import (
    EVERYTHING,
    KNOWN_ID,
    NAMELESS,
    MemoryRules,
    OneTopic,
    random_rules,
    session,
)
from tests.broker.raw import batch, produce_request

CASES = list(cases())
ROUNDS = 5
APART = {"Produce"}
"""APIs whose first row is for other requests: those with transactions."""
READ_GROUP = AclBinding(
    AclResource.GROUP, PatternType.LITERAL, GROUP, "User:alice", "127.0.0.1", Operation.READ,
    PermissionType.ALLOW,
)  # fmt: skip


def new_guard(rules: MemoryRules) -> Guard:
    return Guard(AccessPolicy(rules, AuthorizerSettings()), OneTopic(), creates_topics=True)


def summary(verdict: AccessVerdict | None) -> object:
    """Return what a verdict serves and refuses."""
    if verdict is None:
        return None
    answers = [(refused.answer, refused.halves.kept) for refused in verdict.refused]
    return verdict.request, answers, len(verdict.changes), len(verdict.last_changes)


def check(checked: Guard, case: AccessCase, request: Message) -> object:
    rows = case.route.touches
    return summary(checked.check(case.api, rows, case.version, deepcopy(request), session()))


def differences(case: AccessCase, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how often a verdict differs from that of a review."""
    random, request, count = Random(str(case)), case.request({KNOWN: KNOWN_ID}), 0
    partial = [
        [rule for rule in EVERYTHING if rule.resource_type is not left_out]
        for left_out in AclResource
    ]
    for rules in ([], EVERYTHING, *partial, *(random_rules(random) for _ in range(ROUNDS))):
        checked = new_guard(MemoryRules(rules))
        # The second time, what is allowed is remembered.
        verdicts = [check(checked, case, request) for _ in range(2)]
        with monkeypatch.context() as patch:
            patch.setattr(guard, "plan_of", lambda api, rows, version: None)
            reviewed = check(new_guard(MemoryRules(rules)), case, request)
        count += sum(verdict != reviewed for verdict in verdicts)
    return count


@pytest.mark.parametrize("case", CASES, ids=str)
def test_verdict_is_that_of_a_review(case: AccessCase, monkeypatch: pytest.MonkeyPatch) -> None:
    assert differences(case, monkeypatch) == 0


def test_the_comparison_finds_a_row_that_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    make = grants._plan

    def forget(api: Api[Any, Any], rows: tuple[Access, ...], version: int) -> object:
        plan = make(api, rows, version)
        return None if plan is None else GrantPlan(version, plan.rows[1:])

    monkeypatch.setattr(grants, "_plan", forget)
    monkeypatch.setattr(grants, "_plans", {})
    planned = [
        case
        for case in CASES
        if case.version == case.route.versions[-1]
        and case.topic == KNOWN
        and not case.variant
        and plan_of(case.api, case.route.touches, case.version) is not None
    ]
    found = {case.api.name for case in planned if differences(case, monkeypatch)}
    assert found
    assert {case.api.name for case in planned} - found == APART


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_reader_finds_the_same_names(case: AccessCase) -> None:
    request = case.request({KNOWN: KNOWN_ID})
    for kind in (TopicName, TopicId, GroupId, TransactionalId):
        reader = names_reader(case.api.request, case.version, kind)
        names = [] if reader is None else [name for name in reader(request) if name is not None]
        assert names == names_in(request, case.version, kind)


@pytest.mark.parametrize("name", ["Produce", "Fetch", "Heartbeat", "OffsetCommit", "EndTxn"])
def test_a_request_that_repeats_is_not_reviewed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def review(*_: object) -> None:
        raise AssertionError("reviewed")

    monkeypatch.setattr(guard, "Review", review)
    checked = new_guard(MemoryRules(EVERYTHING))
    known = [case for case in CASES if case.api.name == name and case.topic == KNOWN]
    tried = [case for case in known if case.variant not in {"as a replica", NAMELESS}]
    assert tried
    for case in tried:
        request = case.request({KNOWN: KNOWN_ID})
        checked.check(case.api, case.route.touches, case.version, request, session())


def is_served(checked: Guard, client: ClientSession) -> bool:
    request = HeartbeatRequest(group_id=GROUP, generation_id=0, member_id="")
    rows = routes()[HEARTBEAT.key].touches
    return checked.check(HEARTBEAT, rows, 4, request, client) is None


def test_a_changed_rule_decides_the_next_request() -> None:
    rules = MemoryRules([READ_GROUP])
    checked = new_guard(rules)
    served = [is_served(checked, session()) for _ in range(2)]
    rules.now, rules.version = [], 1
    removed = is_served(checked, session())
    rules.now, rules.version = [READ_GROUP], 2
    restored = is_served(checked, session())
    denial = replace(READ_GROUP, permission=PermissionType.DENY)
    rules.now, rules.version = [READ_GROUP, denial], 3
    denied = is_served(checked, session())
    assert (served, removed, restored, denied) == ([True, True], False, True, False)


def test_permissions_of_one_client_are_not_those_of_another() -> None:
    checked = new_guard(MemoryRules([READ_GROUP]))
    assert is_served(checked, session())
    assert not is_served(checked, session("User:bob"))
    assert not is_served(checked, ClientSession(principal="User:alice", host="127.0.0.2"))
    assert is_served(checked, session())


def test_memory_for_permissions_is_bounded() -> None:
    checked, rows = new_guard(MemoryRules(EVERYTHING)), routes()[PRODUCE.key].touches
    names = [f"topic-{number}" for number in range(3 * policy._MAX_GRANTS)]
    for name in (*names, "x" * 30_000):
        request = produce_request(name, {0: batch(b"x")})
        assert checked.check(PRODUCE, rows, 9, request, session()) is None
    remembered = checked.policy._granted
    assert 0 < len(remembered) <= policy._MAX_GRANTS
    assert max(len(name) for *_, name in remembered) <= policy._MAX_NAME
