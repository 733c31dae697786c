"""A real Kafka with rules, users and quotas, once for all tests here; each works on a copy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rookery.broker.settings import DEFAULT_LISTEN, BrokerSettings
from rookery.service.listen.listenersettings import ListenerConfig
from rookery.testing.certificates import Certificates
from rookery.testing.kafka import KafkaServer
from rookery.testing.ports import HOST, free_port
from rookery.testing.properties import KafkaSettings
from rookery.testing.servedbroker import ServedBroker
from tests.logdir.access.sight import check_logins, fill_access

SECONDS = 300
LISTENERS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SETTINGS = KafkaSettings(
    listeners=LISTENERS,
    properties={
        "allow.everyone.if.no.acl.found": "false",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        # A part of the metadata is then in snapshots, and the rest in the log.
        "metadata.log.max.record.bytes.between.snapshots": "1500",
    },
)


@dataclass(frozen=True)
class StoppedKafka:
    """A Kafka that was stopped: its folder, its settings, its certificates."""

    data: Path
    properties: Path
    certificates: Certificates
    ports: dict[str, int]

    def copy(self, folder: Path) -> Path:
        """Copy the data directory, so that a test can change it."""
        return Path(shutil.copytree(self.data, folder))


@pytest.fixture(scope="session")
def stopped(own_kafka: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoppedKafka]:
    """A Kafka that had rules, users and quotas, and is stopped."""
    home = tmp_path_factory.mktemp("access")
    with KafkaServer(replace(SETTINGS, users={"admin": "admin-secret"}), folder=home) as kafka:
        fill_access(kafka.bootstrap)
        check_logins(kafka.address("SASL_PLAINTEXT"))
        kafka.stop()
        yield StoppedKafka(
            kafka.data,
            kafka.data.parent / "server.properties",
            kafka.certificates,
            {name: kafka.port(name) for name in LISTENERS},
        )


@contextmanager
def guarded(folder: Path, settings: BrokerSettings) -> Iterator[tuple[ServedBroker, str]]:
    """Serve with rules in force; yield the broker and the address for logins."""
    broker = ServedBroker(folder, settings)
    address = f"{HOST}:{free_port()}"
    broker.settings = replace(
        broker.settings,
        listen=DEFAULT_LISTEN,
        authorizer="acls",
        super_users="User:ANONYMOUS;User:admin",
        listeners={
            "PLAINTEXT": ListenerConfig(listen=broker.bootstrap),
            "SASL": ListenerConfig(listen=f"sasl_plaintext://{address}"),
        },
    )
    with broker:
        yield broker, address


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give time to tests that start a Kafka."""
    for item in items:
        if {"stopped", "own_kafka"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.timeout(SECONDS))
            item.add_marker(pytest.mark.kafka)
