"""The guard over all APIs, without a server: what it serves, refuses and completes."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Hashable, Iterable
from copy import deepcopy
from random import Random

import pytest

from rookery.broker.call import routes
from rookery.broker.pages.acldocs import page
from rookery.errors import ErrorCode
from rookery.model.acl import PatternType
from rookery.net.session import ClientSession
from rookery.security.access import AccessScope, AclResource, Denial, Operation
from rookery.security.acl import AclBinding, PermissionType
from rookery.service.access import policy
from rookery.service.access.guard import OPEN_APIS, Guard
from rookery.service.access.policy import DENIALS, AccessPolicy, AuthorizerSettings
from rookery.service.access.redaction import KINDS
from rookery.service.access.requestnames import names_in
from rookery.service.access.verdict import AccessVerdict
from rookery.wire.codec import response_frame
from rookery.wire.message import TopicId
from rookery.wire.messages.add_partitions_to_txn import (
    ADD_PARTITIONS_TO_TXN,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from rookery.wire.messages.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from rookery.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
    has_valid_cursor,
)
from rookery.wire.messages.fetch import FETCH, FetchRequest, FetchResponse
from rookery.wire.messages.find_coordinator import (
    FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from rookery.wire.messages.heartbeat import HEARTBEAT, HeartbeatRequest
from rookery.wire.messages.metadata import MetadataRequest
from rookery.wire.messages.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tests.broker.access.requests import GROUP, KNOWN, TXN, AccessCase, cases

KNOWN_ID = b"k" * 16
EVERYTHING = [
    AclBinding(
        resource, PatternType.LITERAL, "*", "User:*", "*", Operation.ALL, PermissionType.ALLOW
    )
    for resource in AclResource
    if resource is not AclResource.CLUSTER
] + [
    AclBinding(
        AclResource.CLUSTER, PatternType.LITERAL, "kafka-cluster", "User:*", "*",
        Operation.ALL, PermissionType.ALLOW,
    )
]  # fmt: skip
CASES = list(cases())
SERVED = " (served: the authorizer only logs)"
NAMELESS = "transactional without an id"
"""A request that is refused to all clients that rules apply to."""
SHARES_SINCE = 6
"""The first version of FindCoordinator with keys of shares."""


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

    def partitions_of(self, name: str) -> int:
        return 1 if name == KNOWN else 0


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


def is_invalid(case: AccessCase) -> bool:
    """Return whether a request is refused for every client."""
    return case.variant == "share" and case.version < SHARES_SINCE


def serves_nothing(verdict: AccessVerdict | None) -> bool:
    """Return whether no item of a request is served; Metadata still reports the brokers."""
    if verdict is None:
        return False
    if isinstance(verdict.request, MetadataRequest):
        return not verdict.request.topics
    return verdict.request is None


@pytest.mark.parametrize("case", CASES, ids=str)
def test_without_rules_nothing_is_served_except_filtered_lists(case: AccessCase) -> None:
    request = case.request({KNOWN: KNOWN_ID})
    rows = case.route.touches
    verdict = guard(MemoryRules()).check(case.api, rows, case.version, request, session())
    is_filtered = all(
        row.scope is AccessScope.LISTED or row.denial is Denial.REDACT
        for row in rows
        if row.applies(case.version, request)
    )
    assert is_filtered or is_invalid(case) or serves_nothing(verdict)
    if verdict is not None and verdict.request is None:
        response_frame(case.api, case.version, 1, verdict.complete(None))


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND])
def test_error_of_a_group_takes_the_place_of_those_of_denied_topics(code: ErrorCode) -> None:
    rules = [rule for rule in EVERYTHING if rule.resource_type is not AclResource.TOPIC]
    part = OffsetDeleteRequestPartition(partition_index=0)
    topic = OffsetDeleteRequestTopic(name=KNOWN, partitions=[part])
    request = OffsetDeleteRequest(group_id=GROUP, topics=[topic])
    rows = routes()[OFFSET_DELETE.key].touches
    verdict = guard(MemoryRules(rules)).check(OFFSET_DELETE, rows, 0, request, session())
    assert verdict is not None
    assert verdict.request == request.replace(topics=[])
    answer = verdict.complete(OffsetDeleteResponse(error_code=code, topics=[]))
    assert isinstance(answer, OffsetDeleteResponse)
    assert answer.error_code is code
    codes = [part.error_code for topic in answer.topics for part in topic.partitions]
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert codes == ([denied] if code is ErrorCode.NONE else [])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_with_all_permissions_the_request_is_served_as_it_is(case: AccessCase) -> None:
    request = case.request({KNOWN: KNOWN_ID})
    rows = case.route.touches
    verdict = guard(MemoryRules(EVERYTHING)).check(case.api, rows, case.version, request, session())
    is_unknown = case.by_id and case.topic != KNOWN
    if verdict is not None and (is_unknown or case.variant == NAMELESS):
        assert serves_nothing(verdict)
    elif isinstance(request, DescribeTopicPartitionsRequest):
        if has_valid_cursor(request):
            assert (request if verdict is None else verdict.request) == page_of(request)
        else:
            assert serves_nothing(verdict)
    elif verdict is not None:
        assert verdict.request == request


def page_of(request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsRequest:
    """Return the request for the topics that a client learns of on a page, if it may see all."""
    first = "" if request.cursor is None else request.cursor.topic_name
    names = [topic.name for topic in request.topics] or [KNOWN]
    left = [name for name in names if name >= first]
    cursor = request.cursor if first in left else None
    return request.replace(topics=[TopicRequest(name=name) for name in left], cursor=cursor)


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


def test_group_with_a_denied_topic_shows_only_its_name() -> None:
    rules = [rule for rule in EVERYTHING if rule.resource_type is not AclResource.TOPIC]
    request = ConsumerGroupDescribeRequest(group_ids=[GROUP], include_authorized_operations=True)
    parts = TopicPartitions(topic_id=KNOWN_ID, topic_name=KNOWN, partitions=[0])
    member = Member(
        member_id="m", member_epoch=3, client_id="c", client_host="/127.0.0.1",
        subscribed_topic_names=[], assignment=Assignment(topic_partitions=[]),
        target_assignment=Assignment(topic_partitions=[parts]),
    )  # fmt: skip
    group = DescribedGroup(
        error_code=ErrorCode.NONE, group_id=GROUP, group_state="Stable", group_epoch=3,
        assignment_epoch=3, assignor_name="uniform", members=[member], authorized_operations=256,
    )  # fmt: skip
    answer = ConsumerGroupDescribeResponse(groups=[group])
    rows = routes()[CONSUMER_GROUP_DESCRIBE.key].touches
    verdicts = [
        guard(MemoryRules(known)).check(CONSUMER_GROUP_DESCRIBE, rows, 1, request, session())
        for known in (rules, EVERYTHING)
    ]
    shown = [
        each
        for verdict in verdicts
        if verdict is not None
        for each in verdict.complete(answer).groups  # type: ignore[attr-defined] # of this API
    ]
    refused = CONSUMER_GROUP_DESCRIBE.refuse(request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    text = shown[0].error_message
    assert shown[0] == refused.groups[0].replace(error_message=text)
    assert [each.member_id for each in shown[1].members] == ["m"]


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


def test_partitions_of_other_topics_are_judged_separately() -> None:
    rules = [
        AclBinding(
            resource, PatternType.LITERAL, name, "User:alice", "*", Operation.WRITE,
            PermissionType.ALLOW,
        )
        for resource, name in ((AclResource.TRANSACTIONAL_ID, TXN), (AclResource.TOPIC, KNOWN))
    ]  # fmt: skip
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0, 1]) for name in (KNOWN, "denied")]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TXN, v3_and_below_topics=topics
    )
    rows = routes()[ADD_PARTITIONS_TO_TXN.key].touches
    verdict = guard(MemoryRules(rules)).check(ADD_PARTITIONS_TO_TXN, rows, 3, request, session())
    assert verdict is not None
    answer = verdict.complete(None)
    assert isinstance(answer, AddPartitionsToTxnResponse)
    codes = {
        topic.name: [part.partition_error_code for part in topic.results_by_partition]
        for topic in answer.results_by_topic_v3_and_below
    }
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert codes == {
        KNOWN: [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        "denied": [denied, denied],
    }


@pytest.mark.parametrize("version", [4, 6])
def test_coordinators_of_shares_are_for_brokers(version: int) -> None:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=["group:id:0"])
    rows = routes()[FIND_COORDINATOR.key].touches
    strict, lenient = guard(MemoryRules()), guard(MemoryRules(EVERYTHING))
    verdict = strict.check(FIND_COORDINATOR, rows, version, request, session())
    assert lenient.check(FIND_COORDINATOR, rows, version, request, session()) is None
    # Earlier versions have no such keys; the handler refuses them as invalid.
    assert (verdict is not None) == (version == 6)
    if verdict is not None:
        answer = verdict.complete(None)
        assert isinstance(answer, FindCoordinatorResponse)
        [coordinator] = answer.coordinators
        assert coordinator.error_code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_rule_in_force_decides_the_next_request() -> None:
    rules = MemoryRules()
    checked = guard(rules).policy
    question = Operation.READ, AclResource.TOPIC, KNOWN
    before = checked.client(session()).has(*question)
    rules.now, rules.version = EVERYTHING, 1
    during = checked.client(session()).has(*question)
    rules.now, rules.version = [], 2
    after = checked.client(session()).has(*question)
    assert (before, during, after) == (False, True, False)


def counted_denials() -> Counter[str]:
    """Return how often each operation on each type of resource has been denied so far."""
    return Counter(
        {
            name: int(float(value))
            for name, value in (line.rsplit(" ", 1) for line in DENIALS.lines("denials"))
        }
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_log_mode_notes_exactly_what_acls_denies(
    case: AccessCase, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=policy.__name__)
    random, request = Random(str(case)), case.request({KNOWN: KNOWN_ID})
    unchanged = deepcopy(request)

    def noted(rules: list[AclBinding], *, is_enforced: bool) -> tuple[Counter[str], list[str]]:
        checked, before = guard(MemoryRules(rules), is_enforced=is_enforced), counted_denials()
        caplog.clear()
        verdict = checked.check(case.api, case.route.touches, case.version, request, session())
        assert request == unchanged
        assert verdict is None or is_enforced
        lines = [record.getMessage().removesuffix(SERVED) for record in caplog.records]
        return counted_denials() - before, sorted(lines)

    for rules in ([], EVERYTHING, *(random_rules(random) for _ in range(5))):
        assert noted(rules, is_enforced=False) == noted(rules, is_enforced=True)
