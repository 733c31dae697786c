"""Every API as a user under rules, beside a real Kafka with the same rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rookery.errors import ErrorCode
from rookery.testing.kafka import KafkaServer
from rookery.testing.properties import KafkaSettings
from rookery.wire.message import FieldKind, Message
from rookery.wire.table import shape_of
from tests.broker.access.guardedbroker import USERS, GuardedBroker, add_users
from tests.broker.access.login import (
    DENY,
    PREFIXED,
    Rule,
    TestedServer,
    UserConnection,
)
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
# Error codes that express a decision; others depend on what a server is and has done before.
DECISIONS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    ErrorCode.UNKNOWN_TOPIC_ID,
}
NAMES = {"topic name", "group id", "transactional id", "coordinator key"}
MASKS = {"authorized_operations", "topic_authorized_operations", "cluster_authorized_operations"}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestedServer]:
    with GuardedBroker(tmp_path_factory.mktemp("guarded")) as broker:
        server = TestedServer(broker.bootstrap, broker.login_port)
        add_users(server)
        server.prepare(GROUP, TXN)
        yield server


@pytest.fixture(scope="module")
def theirs(own_kafka: None) -> Iterator[TestedServer]:
    settings = KafkaSettings(
        listeners=("SASL_PLAINTEXT",),
        users=USERS,
        properties={"allow.everyone.if.no.acl.found": "false"},
    )
    with KafkaServer(settings) as kafka:
        server = TestedServer(kafka.bootstrap, kafka.port("SASL_PLAINTEXT"))
        server.prepare(GROUP, TXN)
        yield server


def outline(value: Any, ids: dict[bytes, str]) -> Any:
    """Return the codes, names and lists of an answer, without what servers may choose."""
    if not isinstance(value, Message):
        return value
    found: dict[str, Any] = {}
    for name, entry in value.__fields__.items():
        held = getattr(value, name)
        shape = shape_of(type(value), entry)
        kind = shape.mark.name if isinstance(shape.mark, FieldKind) else ""
        if isinstance(held, ErrorCode):
            if held in DECISIONS:
                found[name] = held.name
        elif kind == "topic id" and not shape.is_array:
            found[name] = ids.get(bytes(held), "zero")
        elif kind in NAMES or name in MASKS:
            found[name] = held
        elif isinstance(held, list) and held and isinstance(held[0], Message):
            lines = [outline(element, ids) for element in held]
            if any(lines):
                found[name] = sorted(map(repr, lines))
    return found


def exchange(server: TestedServer, user: UserConnection, case: AccessCase) -> Any:
    known = server.ensure_topic(KNOWN)
    server.remove_topic(MISSING)
    answer = user.ask(case.api, case.version, case.request({KNOWN: known}))
    if case.api.name in {"DeleteGroups", "OffsetDelete", "JoinGroup"}:
        server.prepare(GROUP, TXN)
    return outline(answer, {known: "id of known", bytes(16): "zero"})


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_user_gets_the_answers_of_kafka(
    name: str, ours: TestedServer, theirs: TestedServer
) -> None:
    differences = {}
    for server in (ours, theirs):
        server.set_rules(SCENARIOS[name])
    user_name = "admin" if name == "super user" else "alice"
    users = [UserConnection(server.port, user_name, USERS[user_name]) for server in (ours, theirs)]
    for case in cases():
        mine, other = (
            exchange(server, user, case) for server, user in zip((ours, theirs), users, strict=True)
        )
        if mine != other:
            differences[str(case)] = mine, other
    for user in users:
        user.close()
    assert not differences, "\n".join(f"{k}\n  {a}\n  {b}" for k, (a, b) in differences.items())
