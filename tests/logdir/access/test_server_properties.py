"""`rookery broker server.properties` with a real Kafka's own file: clients notice no difference."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rookery.testing.broker import BrokerProcess
from rookery.testing.ports import HOST
from tests.logdir.access.conftest import StoppedKafka
from tests.logdir.access.sight import (
    EXPECTED,
    PASSWORDS,
    check_logins,
    login,
    look_at_access,
    write_as,
)


class PropertiesBroker(BrokerProcess):
    """A broker that is started with Kafka's file alone."""

    def __init__(self, properties: Path) -> None:
        super().__init__(properties)
        self._file = properties

    def command(self) -> list[str]:
        """Return the command line."""
        return [
            *(sys.executable, "-m", "rookery.cli.main", "broker", str(self._file), "--json"),
            *("--http-listen", f"{HOST}:0"),
        ]


@pytest.fixture
def properties(stopped: StoppedKafka, tmp_path: Path) -> Path:
    """Kafka's file, for a copy of its directory."""
    folder = stopped.copy(tmp_path / "logs")
    path = tmp_path / "server.properties"
    path.write_text(
        f"{stopped.properties.read_text()}\nlog.dirs={folder}\n"
        "ssl.principal.mapping.rules=RULE:^.*CN=client.*$/alice/\n"
    )
    return path


def test_clients_of_every_listener_are_served(stopped: StoppedKafka, properties: Path) -> None:
    address = {name: f"{HOST}:{port}" for name, port in stopped.ports.items()}
    ca = {"ssl.ca.location": str(stopped.certificates.ca)}
    with PropertiesBroker(properties) as broker:
        assert look_at_access(address["PLAINTEXT"]) == EXPECTED
        check_logins(address["SASL_PLAINTEXT"])
        alice = login(address["SASL_SSL"], "alice", PASSWORDS["alice"], "SCRAM-SHA-512")
        alice |= {"security.protocol": "sasl_ssl", **ca}
        assert write_as(alice, "open") == ""
        assert write_as(alice, "closed") == "TOPIC_AUTHORIZATION_FAILED"
        certified = {
            "bootstrap.servers": address["SSL"],
            "security.protocol": "ssl",
            "ssl.certificate.location": str(stopped.certificates.client),
            "ssl.key.location": str(stopped.certificates.client),
            **ca,
        }
        assert write_as(certified, "open") == ""
        assert write_as(certified, "closed") == "TOPIC_AUTHORIZATION_FAILED"
        assert broker.stop() == 0
    said = broker.words()
    assert "the listener CONTROLLER is not served" in said
    assert "alice-secret" not in said
