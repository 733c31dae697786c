"""Every API as a user under rules, beside a real Kafka with the same rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

from rookery.testing.kafka import KafkaServer
from rookery.testing.properties import KafkaSettings
from tests.broker.access.deviations import undocumented
from tests.broker.access.guardedbroker import USERS, GuardedBroker, add_users
from tests.broker.access.login import (
    DENY,
    PREFIXED,
    Rule,
    TestedServer,
    UserConnection,
)
from tests.broker.access.outline import Outline, differing, outline
from tests.broker.access.requests import GROUP, KNOWN, MISSING, TXN, AccessCase, cases

TOPIC_, GROUP_, CLUSTER_, TXN_ = 2, 3, 4, 5
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12
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
    settings = KafkaSettings(
        listeners=("SASL_PLAINTEXT",),
        users=USERS,
        properties={
            "allow.everyone.if.no.acl.found": "false",
            "delegation.token.secret.key": "the key of tokens",
            "num.partitions": "1",
        },
    )
    with KafkaServer(settings) as kafka:
        server = TestedServer(kafka.bootstrap, kafka.port("SASL_PLAINTEXT"))
        server.ensure_topic(KNOWN)
        server.prepare(GROUP, TXN)
        yield server


def exchange(server: TestedServer, user: UserConnection, case: AccessCase) -> Outline:
    known = server.topic_id(KNOWN)
    answer = user.ask(case.api, case.version, case.request({KNOWN: known}))
    if case.api.name in CHANGING:
        server.ensure_topic(KNOWN)
        server.remove_topic(MISSING)
        server.prepare(GROUP, TXN)
    return outline(answer, {known: "id of known", bytes(16): "zero"})


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_user_gets_the_answers_of_kafka(
    name: str, ours: TestedServer, theirs: TestedServer
) -> None:
    differences = {}
    for server in (ours, theirs):
        with closing(UserConnection(server.port, "prober", USERS["prober"])) as prober:
            server.set_rules(SCENARIOS[name], prober)
    user_name = "admin" if name == "super user" else "alice"
    with ExitStack() as stack:
        users = [
            stack.enter_context(closing(UserConnection(one.port, user_name, USERS[user_name])))
            for one in (ours, theirs)
        ]
        for case in cases():
            mine, other = (
                exchange(server, user, case)
                for server, user in zip((ours, theirs), users, strict=True)
            )
            found = undocumented(case, differing(mine, other))
            if found:
                differences[str(case)] = found
    assert not differences, "\n".join(f"{case}: {found}" for case, found in differences.items())
