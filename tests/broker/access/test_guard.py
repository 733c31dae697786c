"""The guard over all APIs, without a server: what it serves, refuses and completes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from random import Random

import pytest

from rookery.broker.call import routes
from rookery.broker.pages.acldocs import page
from rookery.errors import ErrorCode
from rookery.model.acl import PatternType
from rookery.net.session import ClientSession
from rookery.security.access import AccessScope, AclResource, Denial, Operation
from rookery.security.acl import AclBinding, PermissionType
from rookery.service.access.guard import OPEN_APIS, Guard
from rookery.service.access.policy import AccessPolicy, AuthorizerSettings
from rookery.service.access.redaction import KINDS
from rookery.service.access.requestnames import names_in
from rookery.wire.codec import response_frame
from rookery.wire.message import TopicId
from rookery.wire.messages.fetch import FETCH, FetchRequest, FetchResponse
from rookery.wire.messages.heartbeat import HEARTBEAT, HeartbeatRequest
from tests.broker.access.requests import GROUP, KNOWN, TXN, AccessCase, cases

KNOWN_ID = b"k" * 16
EVERYTHING = [
    AclBinding(
        resource, PatternType.LITERAL, "*", "User:*", "*", Operation.ALL, PermissionType.ALLOW
    )
    for resource in (AclResource.TOPIC, AclResource.GROUP, AclResource.TRANSACTIONAL_ID)
] + [
    AclBinding(
        AclResource.CLUSTER, PatternType.LITERAL, "kafka-cluster", "User:*", "*",
        Operation.ALL, PermissionType.ALLOW,
    )
]  # fmt: skip
CASES = list(cases())


class MemoryRules:
    """Rules that a test changes."""

    def __init__(self, rules: Iterable[AclBinding] = ()) -> None:
        self.version = 0
        self.now = list(rules)

    def stamp(self) -> Hashable:
        return self.version

    def rules(self) -> Iterable[AclBinding]:
        return self.now


class OneTopic:
    """A cluster with one topic."""

    def name_of(self, topic_id: bytes) -> str | None:
        return KNOWN if topic_id == KNOWN_ID else None

    def id_of(self, name: str) -> bytes | None:
        return KNOWN_ID if name == KNOWN else None

    def names(self) -> list[str]:
        return [KNOWN]


def guard(rules: MemoryRules, *, is_enforced: bool = True) -> Guard:
    settings = AuthorizerSettings(super_users=("User:root",), is_enforced=is_enforced)
    return Guard(AccessPolicy(rules, settings), OneTopic(), creates_topics=True)


def session(principal: str = "User:alice") -> ClientSession:
    return ClientSession(principal=principal, host="127.0.0.1")


def test_every_api_has_a_row_or_is_open() -> None:
    for key, route in routes().items():
        assert bool(route.touches) != (key in OPEN_APIS), route.api.name


def test_the_page_is_current(pytestconfig: pytest.Config) -> None:
    path = pytestconfig.rootpath / "docs" / "acls.md"
    assert path.read_text("utf-8") == page(), "run scripts/docs"


def test_an_api_without_a_row_is_refused() -> None:
    request = HeartbeatRequest(group_id=GROUP, generation_id=0, member_id="")
    checked = guard(MemoryRules(EVERYTHING))
    verdict = checked.check(HEARTBEAT, (), 4, request, session())
    assert verdict is not None
    assert verdict.request is None
    assert checked.check(HEARTBEAT, (), 4, request, session("User:root")) is None


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_super_user_and_the_log_mode_deny_nothing(case: AccessCase) -> None:
    request = case.request({KNOWN: KNOWN_ID})
    strict, lenient = guard(MemoryRules()), guard(MemoryRules(), is_enforced=False)
    rows = case.route.touches
    assert strict.check(case.api, rows, case.version, request, session("User:root")) is None
    assert lenient.check(case.api, rows, case.version, request, session()) is None


@pytest.mark.parametrize("case", CASES, ids=str)
def test_without_rules_nothing_is_served_except_filtered_lists(case: AccessCase) -> None:
    request = case.request({KNOWN: KNOWN_ID})
    rows = case.route.touches
    verdict = guard(MemoryRules()).check(case.api, rows, case.version, request, session())
    is_filtered = all(
        row.scope is AccessScope.LISTED or row.denial is Denial.REDACT for row in rows
    )
    assert is_filtered or (verdict is not None and verdict.request is None)
    if verdict is not None and verdict.request is None:
        response_frame(case.api, case.version, 1, verdict.complete(None))


@pytest.mark.parametrize("case", CASES, ids=str)
def test_with_all_permissions_the_request_is_served_as_it_is(case: AccessCase) -> None:
    request = case.request({KNOWN: KNOWN_ID})
    rows = case.route.touches
    verdict = guard(MemoryRules(EVERYTHING)).check(case.api, rows, case.version, request, session())
    if verdict is not None and case.by_id and case.topic != KNOWN:
        assert verdict.request is None
    elif verdict is not None:
        assert verdict.request == request


def random_rules(random: Random) -> list[AclBinding]:
    names = {
        AclResource.TOPIC: (KNOWN, "kn", "*", "other"),
        AclResource.GROUP: (GROUP, "gro", "*"),
        AclResource.TRANSACTIONAL_ID: (TXN, "txn", "*"),
        AclResource.CLUSTER: ("kafka-cluster",),
    }
    rules = []
    for _ in range(random.randrange(12)):
        resource = random.choice(list(names))
        rules.append(
            AclBinding(
                resource,
                random.choice((PatternType.LITERAL, PatternType.PREFIXED)),
                random.choice(names[resource]),
                random.choice(("User:alice", "User:*", "User:bob")),
                random.choice(("*", "127.0.0.1", "10.0.0.1")),
                random.choice(list(Operation)),
                random.choice((PermissionType.ALLOW, PermissionType.ALLOW, PermissionType.DENY)),
            )
        )
    return rules


@pytest.mark.parametrize("case", CASES, ids=str)
def test_served_part_names_only_allowed_resources(case: AccessCase) -> None:
    random = Random(str(case))
    for _ in range(20):
        checked = guard(MemoryRules(random_rules(random)))
        request = case.request({KNOWN: KNOWN_ID})
        verdict = checked.check(case.api, case.route.touches, case.version, request, session())
        served = request if verdict is None else verdict.request
        if verdict is not None and served is None:
            response_frame(case.api, case.version, 1, verdict.complete(None))
        if served is None:
            continue
        client = checked.policy.client(session())
        for row in case.route.touches:
            if row.scope is not AccessScope.NAMED or row.denial is Denial.REDACT:
                continue
            if row.is_for_missing or row.resource not in KINDS:
                continue
            if not row.applies(case.version, served) or client.has_on_cluster(row.or_on_cluster):
                continue
            names = set(names_in(served, case.version, KINDS[row.resource])) - {""}
            if row.resource is AclResource.TOPIC:
                ids = set(names_in(served, case.version, TopicId)) - {bytes(16)}
                names |= {OneTopic().name_of(topic_id) for topic_id in ids}
            assert all(client.has(row.operation, row.resource, name) for name in names)


def test_a_fetch_session_ends_when_the_rules_change() -> None:
    rules = MemoryRules(EVERYTHING)
    checked, mine, rows = guard(rules), session(), routes()[FETCH.key].touches

    def check(session_id: int, epoch: int, client: ClientSession) -> object:
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, topics=[], session_id=session_id, session_epoch=epoch
        )
        verdict = checked.check(FETCH, rows, 12, request, client)
        if verdict is None:
            return ErrorCode.NONE
        answer = None if verdict.request is None else FetchResponse(responses=[], session_id=9)
        return verdict.complete(answer).error_code  # type: ignore[attr-defined]

    opened = check(0, 0, mine)
    continued = check(9, 1, mine)
    stranger = check(9, 1, session("User:bob"))
    rules.version += 1
    after_change = check(9, 2, mine)
    lost = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (opened, continued) == (ErrorCode.NONE, ErrorCode.NONE)
    assert (stranger, after_change) == (lost, lost)


def test_a_rule_in_force_decides_the_next_request() -> None:
    rules = MemoryRules()
    policy = guard(rules).policy
    question = Operation.READ, AclResource.TOPIC, KNOWN
    before = policy.client(session()).has(*question)
    rules.now, rules.version = EVERYTHING, 1
    during = policy.client(session()).has(*question)
    rules.now, rules.version = [], 2
    after = policy.client(session()).has(*question)
    assert (before, during, after) == (False, True, False)
