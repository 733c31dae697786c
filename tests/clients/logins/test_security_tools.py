"""kafka-acls and kafka-configs on a closed broker: the output is that of a real Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from rookery.errors import ErrorCode
from rookery.testing.kafka import KafkaServer
from rookery.testing.servedbroker import ask
from rookery.testing.tools import ToolHost
from rookery.testing.wait import wait_until
from rookery.wire.messages.create_acls import CREATE_ACLS, AclCreation, CreateAclsRequest
from rookery.wire.messages.describe_acls import DESCRIBE_ACLS, DescribeAclsRequest
from tests.broker.secured import SecuredBroker, serve_secured
from tests.clients.javatools import sort_items
from tests.clients.logins.loginway import Credentials, LoginWay
from tests.clients.logins.programs import java_settings

ADMIN, ADMIN_PASSWORD = "admin", "admin-secret"
WAY = LoginWay("sasl_ssl", "SCRAM-SHA-512")
Commands = list[str]
ANY, TOPIC, LITERAL, READ, ALLOW = 1, 2, 3, 3, 3
_numbers = count(1)


class SecurityTool:
    """Runs the same commands on Rookery and on Kafka, as a super user."""

    def __init__(
        self, tools: ToolHost, servers: list[Credentials], folder: Path, kafka: str
    ) -> None:
        self._kafka = kafka
        self._tools = tools
        self._folder = folder
        self._servers = servers
        self.suffix = str(next(_numbers))

    def compare(self, commands: Commands) -> list[str]:
        """Run commands with `@` for a text of the test's own; return the output of all."""
        return [self._compare(command) for command in commands]

    def _compare(self, command: str) -> str:
        ours, theirs = self._servers
        here, there = self._run(ours, command), self._run(theirs, command)
        assert here == there, command
        is_read = "--describe" in command or "--list" in command
        if not is_read:
            wait_for_changes(self._kafka)
        return here

    def _run(self, server: Credentials, command: str) -> str:
        path = self._folder / "client.properties"
        settings = java_settings(server, self._folder)
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        address = ("--bootstrap-server", server.address, "--command-config", str(path))
        name, *words = command.replace("@", self.suffix).split()
        done = self._tools.tool(name, *address, *words)
        text = f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        lines = text.replace(server.address, "ADDRESS").splitlines()
        return "\n".join(sorted(filter(None, map(_normalise, lines))))


def wait_for_changes(kafka: str) -> None:
    """Return when a broker of Kafka has applied all changes.

    It applies them in order, up to 40 ms after the controller has confirmed them. Rules are the
    last part of a change that it applies.
    """
    name = f"marker-{next(_numbers)}"
    rule = AclCreation(
        resource_type=TOPIC, resource_name=name, resource_pattern_type=LITERAL,
        principal="User:marker", host="*", operation=READ, permission_type=ALLOW,
    )  # fmt: skip
    [made] = ask(kafka, CREATE_ACLS, 3, CreateAclsRequest(creations=[rule])).results
    assert made.error_code is ErrorCode.NONE
    request = DescribeAclsRequest(
        resource_type_filter=TOPIC, resource_name_filter=name, pattern_type_filter=LITERAL,
        principal_filter=None, host_filter=None, operation=ANY, permission_type=ANY,
    )  # fmt: skip
    wait_until(lambda: ask(kafka, DESCRIBE_ACLS, 3, request).resources)


def _normalise(line: str) -> str:
    """Remove what two servers may choose: the order of sets, and places in Java's code."""
    if line.lstrip().startswith("at "):
        return ""
    line = re.sub(r"\[.*? INFO .*", "", line)
    return sort_items(line.strip())


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    options = {"authorizer": "acls", "super_users": f"User:{ADMIN}"}
    with serve_secured(tmp_path_factory.mktemp("closed"), options) as broker:
        broker.add_user(ADMIN, ADMIN_PASSWORD)
        yield broker


@pytest.fixture
def tool(
    tools: ToolHost, closed: SecuredBroker, kafka_secure: KafkaServer, tmp_path: Path
) -> SecurityTool:
    places = [
        (closed.address("sasl_ssl"), closed.files),
        (kafka_secure.address("SASL_SSL"), kafka_secure.certificates),
    ]
    servers = [
        Credentials(WAY, address, files.ca, files.client, "", ADMIN_PASSWORD, ADMIN)
        for address, files in places
    ]
    return SecurityTool(tools, servers, tmp_path, kafka_secure.bootstrap)


def test_kafka_acls_adds_lists_and_removes_rules(tool: SecurityTool) -> None:
    alice, bob = "--allow-principal User:alice@", "--deny-principal User:bob@"
    outputs = tool.compare(
        [
            f"kafka-acls --add {alice} --operation Read --operation Write --topic t@",
            f"kafka-acls --add {bob} --deny-host 10.0.0.1 --operation All --topic t@",
            f"kafka-acls --add {alice} --producer --topic p@- --resource-pattern-type prefixed",
            f"kafka-acls --add {alice} --consumer --topic c@ --group g@",
            f"kafka-acls --add {alice} --operation Describe --transactional-id x@",
            f"kafka-acls --add {alice} --operation Describe --delegation-token d@",
            "kafka-acls --list --topic t@",
            "kafka-acls --list --topic p@-more --resource-pattern-type match",
            "kafka-acls --list --principal User:alice@",
            "kafka-acls --list --principal User:bob@ --topic t@",
            "kafka-acls --list --transactional-id x@",
            f"kafka-acls --remove --force {alice} --operation Read --topic t@",
            "kafka-acls --list --topic t@",
            "kafka-acls --remove --force --topic t@",
            "kafka-acls --list --topic t@",
            "kafka-acls --remove --force --topic p@- --resource-pattern-type prefixed",
            "kafka-acls --list --principal User:alice@",
            f"kafka-acls --add {alice} --operation Create --topic *",
            "kafka-acls --remove --force --topic *",
        ]
    )
    suffix = tool.suffix
    assert f"principal=User:alice{suffix}" in outputs[6]
    assert "operation=READ" not in outputs[12]
    assert f"User:bob{suffix}" not in outputs[14]


def scram(iterations: int) -> str:
    return f"SCRAM-SHA-512=[iterations={iterations},password=planted]"


def test_kafka_configs_manages_scram_users(tool: SecurityTool) -> None:
    users = "kafka-configs --entity-type users"
    outputs = tool.compare(
        [
            f"{users} --entity-name u@ --alter --add-config SCRAM-SHA-256=[password=planted]",
            f"{users} --entity-name u@ --alter --add-config {scram(8192)}",
            f"{users} --entity-name u@ --describe",
            f"{users} --entity-name u@ --alter --delete-config SCRAM-SHA-256",
            f"{users} --entity-name u@ --describe",
            f"{users} --entity-name u@ --alter --delete-config SCRAM-SHA-256",
            f"{users} --entity-name u@ --alter --add-config {scram(1)}",
            f"{users} --entity-name u@ --alter --add-config {scram(20_000)}",
            f"{users} --entity-name none@ --describe",
        ]
    )
    assert "iterations=8192" in outputs[2]
    assert "SCRAM-SHA-256" not in outputs[4]


@pytest.mark.parametrize(
    "entity",
    [
        "--entity-type users --entity-name u@",
        "--entity-type clients --entity-name c@",
        "--entity-type users --entity-name u@ --entity-type clients --entity-name c@",
        "--entity-type users --entity-name u@ --entity-type clients --entity-default",
        "--entity-type users --entity-default --entity-type clients --entity-name c@",
        "--entity-type users --entity-default",
        "--entity-type clients --entity-default",
    ],
)
def test_kafka_configs_manages_quotas_of_clients(tool: SecurityTool, entity: str) -> None:
    begin = f"kafka-configs {entity}"
    outputs = tool.compare(
        [
            f"{begin} --alter --add-config producer_byte_rate=1024,consumer_byte_rate=2048",
            f"{begin} --alter --add-config request_percentage=200,controller_mutation_rate=3",
            f"{begin} --describe",
            f"{begin} --alter --delete-config producer_byte_rate,request_percentage",
            f"{begin} --describe",
            f"{begin} --alter --add-config consumer_byte_rate=-1",
            f"{begin} --alter --add-config consumer_byte_rate=2048.5",
            f"{begin} --alter --add-config no_such_rate=1",
            f"{begin} --alter --delete-config consumer_byte_rate,controller_mutation_rate",
            f"{begin} --describe",
        ]
    )
    assert "producer_byte_rate=1024.0" in outputs[2]
    assert "producer_byte_rate" not in outputs[4]


def test_kafka_configs_manages_quotas_of_addresses(tool: SecurityTool) -> None:
    address = "kafka-configs --entity-type ips --entity-name 10.0.0.9"
    default = "kafka-configs --entity-type ips --entity-default"
    outputs = tool.compare(
        [
            f"{address} --alter --add-config connection_creation_rate=1000",
            f"{default} --alter --add-config connection_creation_rate=5000",
            f"{address} --describe",
            f"{default} --describe",
            "kafka-configs --entity-type ips --describe",
            f"{address} --alter --delete-config connection_creation_rate",
            f"{default} --alter --delete-config connection_creation_rate",
            "kafka-configs --entity-type ips --describe",
            f"{address} --alter --add-config producer_byte_rate=1",
        ]
    )
    assert "connection_creation_rate=1000.0" in outputs[2]


def test_kafka_configs_manages_settings_of_topics(tool: SecurityTool) -> None:
    topic = "kafka-configs --entity-type topics --entity-name t@"
    outputs = tool.compare(
        [
            "kafka-topics --create --topic t@ --partitions 2",
            f"{topic} --alter --add-config retention.ms=1000,cleanup.policy=[compact,delete]",
            f"{topic} --describe",
            f"{topic} --alter --delete-config retention.ms",
            f"{topic} --describe",
            f"{topic} --alter --add-config retention.ms=soon",
            f"{topic} --alter --add-config no.such.setting=1",
            f"{topic} --alter --delete-config segment.bytes",
            "kafka-configs --entity-type topics --entity-name none@ --describe",
            "kafka-topics --delete --topic t@",
        ]
    )
    assert "retention.ms=1000" in outputs[2]
