"""Logins of Kafka's own Java clients: every mechanism, client certificates, renewed logins."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.client.client import Client
from rookery.client.settings import Sasl
from rookery.testing.java import Java
from tests.broker.secured import PASSWORD, SASL_MECHANISMS, USER, SecuredBroker, serve_secured

RECORDS = 8_000
PER_SECOND = 2_000


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with serve_secured(tmp_path_factory.mktemp("java"), max_session_ms=1_500) as broker:
        yield broker


def write(broker: SecuredBroker, folder: Path, listener: str, mechanism: str = "") -> str:
    """Write a client.properties for a listener."""
    lines = [
        f"bootstrap.servers={broker.address(listener)}",
        f"security.protocol={listener.upper()}",
    ]
    if listener.endswith("ssl"):
        lines += [
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={broker.files.ca}",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={broker.files.client}",
        ]
    if mechanism:
        kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        lines += [
            f"sasl.mechanism={mechanism}",
            (
                f"sasl.jaas.config=org.apache.kafka.common.security.{kind}LoginModule required "
                f'username="{USER}" password="{PASSWORD}";'
            ),
        ]
    path = folder / "client.properties"
    path.write_text("\n".join(lines))
    return str(path)


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [
        *(("sasl_ssl", name) for name in SASL_MECHANISMS),
        ("sasl_plaintext", "SCRAM-SHA-256"),
        ("ssl", ""),
    ],
)
def test_java_client_logs_in(
    java: Java, secured: SecuredBroker, tmp_path: Path, listener: str, mechanism: str
) -> None:
    config = write(secured, tmp_path, listener, mechanism)
    name = f"java-{listener}-{mechanism}".rstrip("-")
    address = ("--bootstrap-server", secured.address(listener), "--command-config", config)
    made = java.tool("kafka-topics", *address, "--create", "--topic", name)
    assert made.returncode == 0, made.stderr
    assert name in java.tool("kafka-topics", *address, "--list").stdout


async def test_java_producer_loses_nothing_while_its_logins_are_renewed(
    java: Java, secured: SecuredBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rookery")
    config = write(secured, tmp_path, "sasl_ssl", "SCRAM-SHA-512")
    done = java.tool(
        "kafka-producer-perf-test",
        "--topic", "renewed", "--num-records", str(RECORDS), "--record-size", "100",
        "--throughput", str(PER_SECOND), "--command-config", config,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    logins = Counter(
        getattr(line, "client", "") for line in caplog.records if line.msg.startswith("login of")
    )
    assert max(logins.values()) > 1
    assert "has expired" not in caplog.text
    settings = secured.client("sasl_plaintext", Sasl("PLAIN", USER, PASSWORD))
    async with Client(settings) as client:
        assert len([record async for record in client.read("renewed", 0)]) == RECORDS
