"""Commands that read Java's client.properties."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rookery.cli.main import main
from tests.broker.secured import PASSWORD, USER, SecuredBroker, serve_secured


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with serve_secured(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


def write(broker: SecuredBroker, folder: Path, password: str = PASSWORD) -> str:
    """Write a client.properties for the listener with TLS and SASL."""
    path = folder / "client.properties"
    path.write_text(
        f"bootstrap.servers={broker.address('sasl_ssl')}\n"
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{USER}" password="{password}";\n'
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={broker.files.ca}\n"
    )
    return str(path)


def test_command_connects_as_the_file_says(
    secured: SecuredBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write(secured, tmp_path)
    assert main(["topics", "create", "orders", "--client-config", config]) == 0
    assert main(["topics", "list", "--client-config", config]) == 0
    assert "orders" in capsys.readouterr().out


def test_option_replaces_the_login_of_the_file(
    secured: SecuredBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write(secured, tmp_path, "wrong")
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    login = ["--user", USER, "--password-file", str(password)]
    assert main(["topics", "list", "--client-config", config]) != 0
    assert "invalid credentials" in capsys.readouterr().err
    assert main(["topics", "list", "--client-config", config, *login]) == 0


def test_unusable_file_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SASL_TLS\n")
    assert main(["topics", "list", "--client-config", str(path)]) != 0
    assert "security.protocol: choose one of" in capsys.readouterr().err
