"""Kafka's own tool for delegation tokens, and logins of Java clients with a token."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.client.client import Client
from rookery.client.settings import Sasl
from rookery.testing.java import Java
from tests.broker.secured import PASSWORD, USER, SecuredBroker, serve_secured

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with serve_secured(tmp_path_factory.mktemp("java")) as broker:
        broker.add_user("bob", PASSWORD)
        yield broker


class TokenTool:
    """`kafka-delegation-tokens` as one user."""

    def __init__(self, java: Java, broker: SecuredBroker, config: Path) -> None:
        self._java = java
        self._options = (
            *("--bootstrap-server", broker.address("sasl_ssl")),
            *("--command-config", str(config)),
        )

    def run(self, *args: str) -> str:
        done = self._java.tool("kafka-delegation-tokens", *self._options, *args)
        assert done.returncode == 0, done.stderr
        return done.stdout


def write_config(
    broker: SecuredBroker, path: Path, user: str, password: str, options: str = ""
) -> Path:
    lines = [
        f"bootstrap.servers={broker.address('sasl_ssl')}",
        "security.protocol=SASL_SSL",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={broker.files.ca}",
        "sasl.mechanism=SCRAM-SHA-256",
        f'sasl.jaas.config={MODULE} required username="{user}" password="{password}"{options};',
    ]
    path.write_text("\n".join(lines))
    return path


def test_java_tool_manages_tokens_and_java_client_logs_in_with_one(
    java: Java, secured: SecuredBroker, tmp_path: Path
) -> None:
    alice = TokenTool(java, secured, write_config(secured, tmp_path / "alice", USER, PASSWORD))

    made = alice.run("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    described = alice.run("--describe", "--owner-principal", f"User:{USER}")
    row = re.search(r"^(\S{22})\s+(\S{88})\s", made, re.MULTILINE)
    assert row is not None, made
    token_id, hmac = row.groups()
    assert token_id in described
    assert "User:bob" in described

    job = write_config(secured, tmp_path / "job", token_id, hmac, ' tokenauth="true"')
    address = ("--bootstrap-server", secured.address("sasl_ssl"), "--command-config", str(job))
    created = java.tool("kafka-topics", *address, "--create", "--topic", "by-token")
    assert created.returncode == 0, created.stderr
    refused = java.tool(
        "kafka-delegation-tokens", *address, "--create", "--max-life-time-period", "-1"
    )
    assert refused.returncode != 0
    assert "DelegationTokenDisabledException" not in refused.stderr
    assert "Delegation Token requests are not allowed" in refused.stderr + refused.stdout

    bob = TokenTool(java, secured, write_config(secured, tmp_path / "bob", "bob", PASSWORD))
    assert "renew" in bob.run("--renew", "--renew-time-period", "-1", "--hmac", hmac).lower()
    alice.run("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert token_id not in alice.run("--describe")


async def test_java_producer_writes_with_a_token(
    java: Java, secured: SecuredBroker, tmp_path: Path
) -> None:
    settings = secured.client("sasl_plaintext", Sasl("SCRAM-SHA-512", USER, PASSWORD))
    async with Client(settings) as client:
        token = await client.tokens.create()
        config = write_config(
            secured, tmp_path / "job", token.token_id, token.password, " tokenauth=true"
        )
        done = java.tool(
            "kafka-producer-perf-test",
            "--topic", "by-job", "--num-records", "100", "--record-size", "10",
            "--throughput", "-1", "--command-config", str(config),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert len([record async for record in client.read("by-job", 0)]) == 100
