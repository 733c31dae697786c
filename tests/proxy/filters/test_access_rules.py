"""Access rules at the proxy, compared with a broker that enforces the same rules."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.broker.settings import BrokerSettings
from rookery.errors import ConfigError
from rookery.model.acl import StoredAcl
from rookery.proxy.filters import access_rules
from rookery.proxy.filters.access_rules import AccessRules
from rookery.proxy.settings import ProxySettings
from rookery.security.acl import AclBinding
from rookery.security.acltext import read_rules, rule_fields
from rookery.service.listen.listenersettings import ListenerSecurity
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.servedproxy import ServedProxy
from tests.broker.access.guardedbroker import USERS, GuardedBroker, add_users
from tests.broker.access.login import Rule, TestedServer, UserConnection
from tests.broker.access.outline import differing
from tests.broker.access.requests import GROUP, KNOWN, TXN, cases
from tests.broker.access.test_acl_parity import LITERALS, ON_CLUSTER, SCENARIOS, WILDCARDS, exchange
from tests.broker.access.test_strangers import GUARDED, served

COMPARED = ["literal", "deny over allow", "other host", "operation 4", "deny operation 8"]
OTHERS = sorted(SCENARIOS.keys() - {*COMPARED, "super user"})
"""Compared with the peers. Super users are in no rule."""
UPSTREAM = {
    "CreateDelegationToken",
    "DescribeDelegationToken",
    "CreateAcls",
    "DeleteAcls",
    "DescribeAcls",
    "DescribeQuorum",
}
"""Users of tokens, rules and listeners of the upstream are its own."""


class ProxiedServer(TestedServer):
    """A server without rules, and a proxy with rules in a file before it."""

    def __init__(self, bootstrap: str, port: int, rules: Path) -> None:
        super().__init__(bootstrap, port)
        self._rules = rules

    def set_rules(self, rules: Iterable[Rule], prober: UserConnection | None = None) -> None:
        bindings = [
            AclBinding.from_stored(
                StoredAcl(
                    rule.type, rule.pattern, rule.name, rule.principal, rule.host,
                    rule.operation, rule.permission,
                )
            )
            for rule in rules
        ]  # fmt: skip
        self._rules.write_text(json.dumps([rule_fields(each) for each in bindings]))


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("users") / "users.toml"
    path.touch(mode=0o600)
    path.write_text("".join(f'[{name}]\npassword = "{word}"\n' for name, word in USERS.items()))
    return path


def guarded_proxy(upstream: str, users: Path, rules: Path) -> ServedProxy:
    options = {"rules_file": str(rules), "super_users": ["User:admin"]}
    settings = ProxySettings(users_file=str(users), security=ListenerSecurity(mechanisms="PLAIN"))
    proxy = ServedProxy(upstream, settings, [AccessRules(options)])
    proxy.settings = replace(proxy.settings, listen=f"sasl_plaintext://{proxy.settings.listen}")
    return proxy


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory, users: Path) -> Iterator[ProxiedServer]:
    folder = tmp_path_factory.mktemp("proxied")
    rules = folder / "rules.json"
    rules.write_text("[]")
    with (
        pytest.MonkeyPatch.context() as patch,
        ServedBroker(folder / "data", BrokerSettings(durability="os")) as broker,
        guarded_proxy(broker.bootstrap, users, rules) as proxy,
    ):
        patch.setattr(access_rules, "_LOOK_MS", 0)
        server = ProxiedServer(broker.bootstrap, proxy.port, rules)
        server.ensure_topic(KNOWN)
        server.prepare(GROUP, TXN)
        yield server


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestedServer]:
    with GuardedBroker(tmp_path_factory.mktemp("guarded")) as broker:
        server = TestedServer(broker.bootstrap, broker.login_port)
        add_users(server)
        server.ensure_topic(KNOWN)
        server.prepare(GROUP, TXN)
        yield server


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: route.api.name)
def test_a_stranger_is_denied(route: object, proxied: ProxiedServer) -> None:
    proxied.set_rules([])
    with closing(UserConnection(proxied.port, "alice", USERS["alice"])) as alice:
        assert not served(route, proxied, alice)  # type: ignore[arg-type] # one of the routes


@pytest.mark.parametrize("name", COMPARED)
def test_answers_are_those_of_a_broker_with_the_same_rules(
    name: str, proxied: ProxiedServer, guarded: TestedServer
) -> None:
    check_scenario(name, proxied, guarded)


@pytest.mark.parametrize("name", OTHERS)
def test_answers_are_those_of_a_broker_with_any_rules(
    name: str, proxied: ProxiedServer, guarded: TestedServer, own_processes: None
) -> None:
    check_scenario(name, proxied, guarded)


def check_scenario(name: str, proxied: ProxiedServer, guarded: TestedServer) -> None:
    """Compare the answers to all requests of the newest versions."""
    differences = {}
    for server in (proxied, guarded):
        server.set_rules(SCENARIOS[name])
    with (
        closing(UserConnection(proxied.port, "alice", USERS["alice"])) as at_proxy,
        closing(UserConnection(guarded.port, "alice", USERS["alice"])) as at_broker,
    ):
        for case in cases():
            if case.api.name in UPSTREAM or case.version != case.route.versions[-1]:
                continue
            mine = exchange(proxied, at_proxy, case)
            other = exchange(guarded, at_broker, case)
            fields = differing(mine, other)
            if fields:
                differences[str(case)] = fields
    assert not differences, "\n".join(f"{case}: {fields}" for case, fields in differences.items())


def test_clients_are_served_by_rules_that_change(
    server: str, users: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_rules, "_LOOK_MS", 0)
    names = [f"{kind}-{uuid4().hex}" for kind in ("mine", "other")]
    admin = AdminClient({"bootstrap.servers": server})
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(20)
    rules = tmp_path / "rules.toml"
    rules.write_text(
        '[[rules]]\nprincipal = "User:alice"\nresource = "topic"\npattern = "prefixed"\n'
        'name = "mine-"\noperation = "all"\n'
    )
    with guarded_proxy(server, users, rules) as proxy:
        config: dict[str, Any] = {
            "bootstrap.servers": proxy.bootstrap, "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": USERS["alice"],
        }  # fmt: skip
        assert outcome(config, names) == [None, KafkaError.TOPIC_AUTHORIZATION_FAILED]
        listed = AdminClient(config).list_topics(timeout=20).topics
        assert {name for name in listed if name in names} == {names[0]}

        rules.write_text("nonsense [")
        assert outcome(config, names)[0] is None
        rules.write_text("")
        rules.write_text("rules = []\n")
        assert outcome(config, names) == [KafkaError.TOPIC_AUTHORIZATION_FAILED] * 2


def outcome(config: dict[str, Any], topics: list[str]) -> list[int | None]:
    """Produce one record to each topic; return the error code of each."""
    codes: dict[str, int | None] = {}

    def note(error: KafkaError | None, message: Message) -> None:
        codes[message.topic() or ""] = error.code() if error else None

    producer = Producer(config | {"message.timeout.ms": 10_000})
    for topic in topics:
        producer.produce(topic, b"x", on_delivery=note)
    assert producer.flush(20) == 0
    return [codes[topic] for topic in topics]


def test_rules_are_read_as_they_are_listed() -> None:
    rules = [
        AclBinding.from_stored(
            StoredAcl(r.type, r.pattern, r.name, "User:a", r.host, r.operation, r.permission)
        )
        for r in [*WILDCARDS, *LITERALS, ON_CLUSTER]
    ]

    assert read_rules(json.dumps([rule_fields(each) for each in rules]), is_toml=False) == rules


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("{}", "a JSON list of rules"),
        ('[{"principal": "User:a"}]', "needs the field operation"),
        ('[{"topic": "a"}]', "no field 'topic'"),
        (
            '[{"principal": "User:a", "operation": "fly", "resource": "topic", "name": "a"}]',
            "'fly' is not one of all, read",
        ),
        (
            '[{"principal": "alice", "operation": "read", "resource": "topic", "name": "a"}]',
            "not of the form Type:name",
        ),
    ],
)
def test_invalid_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "rules.json"
    path.write_text(text)

    with pytest.raises(ConfigError, match=message):
        AccessRules({"rules_file": str(path)})
