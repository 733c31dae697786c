"""The audit file of a broker: logins and administrative changes, without secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from rookery.broker.settings import BrokerSettings
from rookery.cluster.events.securityevents import (
    AclFilterRow,
    AclRow,
    AclsCreated,
    AclsDeleted,
    ScramChange,
    ScramCredentialsChanged,
)
from rookery.cluster.state.rules.securityrules import binding_of
from rookery.cluster.state.state import Outcome, State
from rookery.errors import ErrorCode
from rookery.security.credential import ScramCredential
from rookery.service.audit.changes import changes_of, removed_rules
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.testing.wait import wait_until
from rookery.wire.messages.create_topics import CREATE_TOPICS
from rookery.wire.messages.delete_topics import (
    DELETE_TOPICS,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.broker.test_client_quotas import ALICE, PRODUCE, alter
from tests.broker.test_secrets import SECRET, change_credentials
from tests.broker.test_throttle import create_request

PASSWORD = "planted-password"  # noqa: S105 (of a test)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


@pytest.fixture
def audited(tmp_path: Path, path: Path) -> Iterator[ServedBroker]:
    settings = BrokerSettings(durability="os", audit_file=str(path))
    with ServedBroker(tmp_path / "data", settings) as broker:
        yield broker


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_changes_are_recorded_with_their_resources(audited: ServedBroker, path: Path) -> None:
    delete = DeleteTopicsRequest(
        topics=[DeleteTopicState(name="t")], topic_names=["t"], timeout_ms=20_000
    )
    ask(audited.bootstrap, CREATE_TOPICS, 7, create_request("t"))
    ask(audited.bootstrap, DELETE_TOPICS, 6, delete)
    alter(audited.bootstrap, ([ALICE], [(PRODUCE, 10.0)]))
    change_credentials(audited)

    wait_until(lambda: len(lines(path)) == 4)
    entries = lines(path)
    assert [(entry["api"], entry["operation"], entry["resource"]) for entry in entries] == [
        ("CreateTopics", "CREATE", {"type": "TOPIC", "name": "t"}),
        ("DeleteTopics", "DELETE", {"type": "TOPIC", "name": "t"}),
        ("AlterClientQuotas", "ALTER_CONFIGS", {"type": "CLUSTER", "name": "kafka-cluster"}),
        ("AlterUserScramCredentials", "ALTER", {"type": "USER", "name": "User:good"}),
    ]
    assert {(entry["kind"], entry["principal"], entry["decision"]) for entry in entries} == {
        ("change", "User:ANONYMOUS", "allowed")
    }
    assert {entry["host"] for entry in entries} == {"127.0.0.1"}
    assert SECRET.decode() not in path.read_text()


def test_logins_are_recorded(tmp_path: Path, path: Path) -> None:
    broker = ServedBroker(tmp_path / "data", BrokerSettings(durability="os", audit_file=str(path)))
    broker.settings = replace(broker.settings, listen=f"sasl_plaintext://{broker.bootstrap}")
    with broker:
        _add_user(broker, "alice")
        _client(broker, "alice", PASSWORD).list_topics(timeout=10)
        stranger = _client(broker, "mallory", "another-password")
        with pytest.raises(KafkaException):
            stranger.list_topics(timeout=1)
        # Its first login can take longer on a busy host.
        wait_until(lambda: "User:mallory" in path.read_text())

    logins = {(line["principal"], line["decision"], line.get("reason")) for line in lines(path)}
    assert logins == {
        ("User:alice", "allowed", None),
        ("User:mallory", "denied", "SASL_AUTHENTICATION_FAILED"),
    }
    assert "password" not in path.read_text()


def _add_user(broker: ServedBroker, user: str) -> None:
    known = ScramCredential.from_password("SCRAM-SHA-256", PASSWORD, b"salt", 4096)
    change = ScramChange(
        mechanism=1,
        iterations=4096,
        salt=known.salt,
        stored_key=known.stored_key,
        server_key=known.server_key,
    )

    async def propose() -> list[Outcome]:
        event = ScramCredentialsChanged(user=user, changes=[change])
        return await broker.broker.replica.propose([event])

    assert broker.do(propose()) == [Outcome(ErrorCode.NONE)]


def _client(broker: ServedBroker, user: str, password: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }
    )


def test_denials_are_recorded_with_their_rule(tmp_path: Path, path: Path) -> None:
    settings = BrokerSettings(durability="os", audit_file=str(path), authorizer="acls")
    rule = AclRow(
        resource_type=4, pattern_type=3, resource_name="kafka-cluster", principal="User:*",
        host="*", operation=11, permission=2,
    )  # fmt: skip
    with ServedBroker(tmp_path / "data", settings) as broker:

        async def propose() -> list[Outcome]:
            return await broker.broker.replica.propose([AclsCreated(rules=[rule])])

        broker.do(propose())
        [(code, _)] = alter(broker.bootstrap, ([ALICE], [(PRODUCE, 10.0)]))

    assert code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    [denial] = lines(path)
    assert (denial["kind"], denial["decision"]) == ("access", "denied")
    assert (denial["principal"], denial["host"]) == ("User:ANONYMOUS", "127.0.0.1")
    assert (denial["listener"], denial["operation"]) == ("PLAINTEXT", "ALTER_CONFIGS")
    assert denial["rule"]["permission"] == "DENY"


def test_each_changed_rule_is_recorded() -> None:
    row = AclRow(
        resource_type=2, pattern_type=3, resource_name="t", principal="User:u", host="*",
        operation=3, permission=3,
    )  # fmt: skip
    everything = AclFilterRow(
        resource_type=1, pattern_type=1, resource_name=None, principal=None, host=None,
        operation=1, permission=1,
    )  # fmt: skip
    created, deleted = AclsCreated(rules=[row]), AclsDeleted(filters=[everything])
    state = State()

    [added] = changes_of(state, created)
    assert str(added.rule) == "ALLOW User:u READ on TOPIC 't'"
    [planned] = changes_of(state, deleted)
    assert planned.rule is None
    [removed] = removed_rules(deleted, Outcome(ErrorCode.NONE, [[binding_of(row)]]))
    assert removed.rule == added.rule
