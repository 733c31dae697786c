"""Every API for a user under rules, compared with a real Kafka with the same rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from rookery.errors import ErrorCode
from rookery.security.acl import ANYONE
from rookery.testing.wait import wait_until
from rookery.wire.messages.metadata import MetadataResponse
from tests.broker.access.deviations import DEVIATIONS, OF_DENIALS, Deviation, reasons
from tests.broker.access.guardedbroker import USERS, GuardedBroker, add_users, guarded_kafka
from tests.broker.access.login import (
    DENY,
    PREFIXED,
    Rule,
    TestedServer,
    UserConnection,
)
from tests.broker.access.outline import Outline, differing, outline
from tests.broker.access.requests import GROUP, KNOWN, MISSING, TXN, AccessCase, cases
from tests.broker.access.variants import SHARE_KEY

TOPIC_, GROUP_, CLUSTER_, TXN_ = 2, 3, 4, 5
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12
SHARES = 2
ON_CLUSTER = Rule(CLUSTER_, "kafka-cluster")
WILDCARDS = [Rule(TOPIC_, "*"), Rule(GROUP_, "*"), Rule(TXN_, "*")]
LITERALS = [Rule(TOPIC_, KNOWN), Rule(GROUP_, GROUP), Rule(TXN_, TXN)]

SCENARIOS: dict[str, list[Rule]] = {
    "none": [],
    "super user": [],
    "literal": LITERALS,
    "prefixed": [
        Rule(TOPIC_, "kn", pattern=PREFIXED),
        Rule(GROUP_, "group", pattern=PREFIXED),
        Rule(TXN_, "txn-", pattern=PREFIXED),
    ],
    "wildcard": WILDCARDS,
    "deny over allow": [*WILDCARDS, *(rule._replace(permission=DENY) for rule in LITERALS)],
    "prefix that is too long": [
        Rule(rule.type, f"{rule.name}-", pattern=PREFIXED) for rule in LITERALS
    ],
    "anyone": [rule._replace(principal=ANYONE) for rule in LITERALS],
    "anyone denied": [
        *WILDCARDS,
        *(rule._replace(principal=ANYONE, permission=DENY) for rule in LITERALS),
    ],
    "another user": [rule._replace(principal="User:bob") for rule in [*WILDCARDS, ON_CLUSTER]],
    "another user denied": [
        *WILDCARDS,
        *(rule._replace(principal="User:bob", permission=DENY) for rule in LITERALS),
    ],
    "other host": [rule._replace(host="10.0.0.1") for rule in [*WILDCARDS, ON_CLUSTER]],
    "this host": [rule._replace(host="127.0.0.1") for rule in WILDCARDS],
    "group only": [Rule(GROUP_, GROUP)],
    "id only": [Rule(TXN_, TXN)],
    "group and id": [Rule(GROUP_, GROUP), Rule(TXN_, TXN)],
    "cluster": [ON_CLUSTER],
    "topic only": [Rule(TOPIC_, KNOWN)],
    **{
        f"operation {operation}": [
            rule._replace(operation=operation) for rule in [*WILDCARDS, ON_CLUSTER]
        ]
        for operation in range(READ, IDEMPOTENT_WRITE + 1)
    },
    **{
        f"deny operation {operation}": [
            *WILDCARDS,
            ON_CLUSTER,
            *(rule._replace(operation=operation, permission=DENY) for rule in WILDCARDS),
            ON_CLUSTER._replace(operation=operation, permission=DENY),
        ]
        for operation in range(READ, IDEMPOTENT_WRITE + 1)
    },
}
CHANGING = {
    "CreateTopics", "DeleteTopics", "Metadata", "DeleteGroups", "OffsetDelete", "JoinGroup",
    "OffsetCommit", "TxnOffsetCommit", "InitProducerId", "LeaveGroup", "EndTxn",
}  # fmt: skip
"""The APIs after whose requests topics, groups and ids are made as before."""


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestedServer]:
    with GuardedBroker(tmp_path_factory.mktemp("guarded")) as broker:
        server = TestedServer(broker.bootstrap, broker.login_port)
        add_users(server)
        server.ensure_topic(KNOWN)
        server.prepare(GROUP, TXN)
        yield server


@pytest.fixture(scope="module")
def theirs(own_kafka: None) -> Iterator[TestedServer]:
    with guarded_kafka() as server:
        server.ensure_topic(KNOWN)
        server.prepare(GROUP, TXN)
        server.await_coordinator(SHARES, SHARE_KEY, version=6)
        yield server


def exchange(server: TestedServer, user: UserConnection, case: AccessCase) -> Outline:
    known = server.topic_id(KNOWN)
    answer = user.ask(case.api, case.version, case.request({KNOWN: known}))
    if isinstance(answer, MetadataResponse) and creates_later(answer):
        wait_until(lambda: server.topic_id(MISSING) != bytes(16))
    if case.api.name in CHANGING:
        server.ensure_topic(KNOWN)
        server.remove_topic(MISSING)
        server.prepare(GROUP, TXN)
    return outline(answer, {known: "id of known", bytes(16): "zero"})


def creates_later(answer: MetadataResponse) -> bool:
    """Return whether the answer is about a topic that Kafka creates after it."""
    codes = {topic.name: topic.error_code for topic in answer.topics}
    return codes.get(MISSING) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_user_gets_the_answers_of_kafka(
    name: str, ours: TestedServer, theirs: TestedServer
) -> None:
    differences, met = {}, set[Deviation | None]()
    for server in (ours, theirs):
        with closing(UserConnection(server.port, "prober", USERS["prober"])) as prober:
            server.set_rules(SCENARIOS[name], prober)
    user_name = "admin" if name == "super user" else "alice"
    with ExitStack() as stack:
        users = [
            stack.enter_context(closing(UserConnection(server.port, user_name, USERS[user_name])))
            for server in (ours, theirs)
        ]
        for case in cases():
            mine, other = (
                exchange(server, user, case)
                for server, user in zip((ours, theirs), users, strict=True)
            )
            values = differing(mine, other)
            rows = reasons(case, values)
            met |= {*rows.values()}
            unexplained = {place: values[place] for place, row in rows.items() if row is None}
            if unexplained:
                differences[str(case)] = unexplained
    assert not differences, "\n".join(f"{case}: {values}" for case, values in differences.items())
    # Each row is still needed: by a client that may do everything, or by one that may do nothing.
    if name == "super user":
        assert not {*DEVIATIONS} - met - OF_DENIALS
    if name == "none":
        assert not OF_DENIALS - met


def test_each_deviation_is_documented(pytestconfig: pytest.Config) -> None:
    page = (pytestconfig.rootpath / "docs" / "differences.md").read_text("utf-8")
    assert [row for row in DEVIATIONS if f"\n| {row.documented}" not in page] == []
