"""`rookery broker --secure`: a closed broker in one command."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from rookery.broker.process.securefolder import SecureFolder, secure_settings
from rookery.broker.settings import BrokerSettings
from rookery.cli.commands.broker import _secure_attempts
from rookery.clock import SystemClock, SystemRandom
from rookery.errors import ConfigError
from rookery.security.certificates import describe_certificates
from rookery.service.listeners import ListenerConfig, ListenerSecurity
from rookery.testing.broker import BrokerProcess
from rookery.testing.java import Java

Config = dict[str, str | int | float | bool]

SECONDS = 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data = tmp_path_factory.mktemp("secure") / "data"
    with BrokerProcess(data, flags=["--secure", "--durability", "os"]) as process:
        yield process


def folder_of(broker: BrokerProcess) -> Path:
    return broker.folder / "security"


def read_config(path: Path) -> Config:
    config: Config = {"log_level": 0}
    for line in path.read_text().splitlines():
        name, _, value = line.partition("=")
        config[name] = value
    return config


def topics(config: Config) -> list[str]:
    return sorted(AdminClient(config).list_topics(timeout=SECONDS).topics)


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rookery.cli.main", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def login(broker: BrokerProcess) -> list[str]:
    folder = folder_of(broker)
    return [
        *("--bootstrap", broker.bootstrap, "--ca-file", str(folder / "ca.pem")),
        *("--user", "admin", "--password-file", str(folder / "admin-password")),
    ]


def test_files_are_private(broker: BrokerProcess) -> None:
    folder = folder_of(broker)

    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_clients_log_in_with_the_written_files(broker: BrokerProcess) -> None:
    created = command("topics", "create", "birds", *login(broker))

    assert created.returncode == 0, created.stderr
    assert topics(read_config(folder_of(broker) / "librdkafka.conf")) == ["birds"]


def test_javas_tools_log_in_with_their_file(broker: BrokerProcess, java: Java) -> None:
    done = java.tool(
        *("kafka-topics", "--bootstrap-server", broker.bootstrap, "--list"),
        *("--command-config", str(folder_of(broker) / "client.properties")),
    )

    assert done.returncode == 0, done.stderr


def test_strangers_are_refused(broker: BrokerProcess) -> None:
    config = read_config(folder_of(broker) / "librdkafka.conf")
    config |= {"sasl.password": "wrong"}

    with pytest.raises(KafkaException):
        AdminClient(config).list_topics(timeout=1)
    open_client = command("topics", "list", "--bootstrap", broker.bootstrap, "--timeout", "1")
    assert open_client.returncode == 1


def test_users_are_allowed_by_rules(broker: BrokerProcess, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("correct horse\n")
    own = login(broker)
    theirs = [*own[:4], "--user", "jackdaw", "--password-file", str(password)]

    def run(*words: str) -> str:
        done = command(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("topics", "create", "nests", *own)
    run("users", "add", "jackdaw", "--new-password-file", str(password), *own)
    hidden = run("topics", "list", "--json", *theirs)
    run("acls", "add", "User:jackdaw", "--topic", "nests", "--operation", "read", *own)
    seen = run("topics", "list", "--json", *theirs)
    checked = run("acls", "check", "User:jackdaw", "--topic", "nests", "--operation", "read", *own)

    assert "nests" not in hidden
    assert "nests" in seen
    assert "allowed; a rule allows it" in checked


def test_the_log_and_the_output_have_no_password(broker: BrokerProcess) -> None:
    password = (folder_of(broker) / "admin-password").read_text().strip()

    assert len(password) >= 32
    assert password not in broker.words()


def test_a_second_start_uses_the_same_files(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", flags=["--secure", "--durability", "os"])
    broker.start()
    names = ["ca-key.pem", "broker.pem", "admin-password", "librdkafka.conf"]
    before = {name: (folder_of(broker) / name).read_bytes() for name in names}
    broker.stop()

    with broker:
        after = {name: (folder_of(broker) / name).read_bytes() for name in names}
        listed = command("users", "list", "--json", *login(broker))

    assert after == before
    assert listed.returncode == 0, listed.stderr
    assert '"admin"' in listed.stdout


def test_workers_serve_the_same_users(tmp_path: Path) -> None:
    flags = ["--secure", "--durability", "os"]
    with BrokerProcess(tmp_path / "data", workers=2, flags=flags) as broker:
        listed = command("users", "list", "--json", *login(broker))

    assert listed.returncode == 0, listed.stderr


def test_the_greeting_names_commands_that_work(broker: BrokerProcess) -> None:
    attempts = _secure_attempts(broker.bootstrap, SecureFolder(str(broker.folder)))
    kcat, rookery = (shlex.split(line) for line in attempts[:2])

    done = command(*rookery[1:])

    assert rookery[0] == "rookery"
    assert done.returncode == 0, done.stderr
    assert kcat[:2] == ["kcat", "-F"]
    assert topics(read_config(Path(kcat[2]))) is not None


def test_settings_become_those_of_a_closed_broker(tmp_path: Path) -> None:
    folder = SecureFolder(str(tmp_path / "my data"))
    settings = BrokerSettings(data=str(tmp_path / "my data"), secure=True)
    secured = secure_settings(settings, SystemClock(), SystemRandom())
    folder.write_client_files("127.0.0.1:9092")

    assert (secured.authorizer, secured.super_users) == ("acls", "User:admin")
    assert secured.listen == "sasl_ssl://127.0.0.1:9092"
    assert secured.security.certificate_file == str(folder.identity)
    assert "[clusters.local]" in (folder.path / "rookery.toml").read_text()


def test_a_certificate_lasts_until_a_name_is_missing(tmp_path: Path) -> None:
    def names(listen: str) -> tuple[str, ...]:
        settings = BrokerSettings(data=str(tmp_path), secure=True, listen=listen)
        secure_settings(settings, SystemClock(), SystemRandom())
        return describe_certificates(tmp_path / "security" / "broker.pem")[0].names

    first = (tmp_path / "security" / "broker.pem", names("127.0.0.1:9092"))
    content = first[0].read_bytes()
    names("127.0.0.2:9092")

    assert {"localhost", "127.0.0.1", "::1"} <= set(first[1])
    assert first[0].read_bytes() != content
    assert "127.0.0.2" in names("127.0.0.2:9092")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (BrokerSettings(store="memory:x"), "data folder"),
        (BrokerSettings(listen="ssl://127.0.0.1:9093"), "sasl_ssl"),
        (BrokerSettings(listeners={"a": ListenerConfig(listen="127.0.0.1:1")}), "one listener"),
        (BrokerSettings(security=ListenerSecurity(certificate_file="x")), "certificate_file"),
    ],
)
def test_contradicting_settings_are_refused(settings: BrokerSettings, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        secure_settings(settings, SystemClock(), SystemRandom())
