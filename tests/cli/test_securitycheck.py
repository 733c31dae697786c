"""`rookery doctor` reports what the settings of a broker leave open."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rookery.broker.settings import BrokerSettings
from rookery.cli.main import main
from rookery.cli.securitycheck import SecurityFinding, look_at_broker
from rookery.service.listen.listenersettings import ListenerConfig, ListenerSecurity

CLOSED = BrokerSettings(
    listen="sasl_ssl://0.0.0.0:9093", authorizer="acls", data="no-such-folder", http_listen=""
)
MTLS = ListenerSecurity(client_auth="required")


def findings(settings: BrokerSettings) -> list[SecurityFinding]:
    return list(look_at_broker(settings))


def open_names(settings: BrokerSettings) -> list[str]:
    return [finding.name for finding in findings(settings) if finding.remedy]


def with_mode(path: Path, mode: int) -> str:
    path.touch()
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    "settings",
    [
        CLOSED,
        BrokerSettings(data="no-such-folder"),
        BrokerSettings(data="no-such-folder", secure=True, listen="0.0.0.0:9093"),
        BrokerSettings(store="s3://bucket/log", cluster="etcd://127.0.0.1:2379,[::1]:2379"),
        BrokerSettings(store="s3://bucket/log", cluster="etcd://etcd.example.org:2379?tls=on"),
    ],
    ids=["closed", "default", "secure", "near etcd", "encrypted etcd"],
)
def test_closed_brokers_need_no_remedy(settings: BrokerSettings) -> None:
    assert open_names(settings) == []


@pytest.mark.parametrize(
    ("listen", "security", "detail"),
    [
        ("0.0.0.0:9092", ListenerSecurity(), "no authentication"),
        ("ssl://10.0.0.5:9092", ListenerSecurity(), "no authentication"),
        ("sasl_plaintext://[::]:9092", ListenerSecurity(), "not encrypted"),
    ],
)
def test_listeners_that_other_hosts_reach_are_open(
    listen: str, security: ListenerSecurity, detail: str
) -> None:
    settings = BrokerSettings(
        listen=listen, security=security, authorizer="acls", data="no-such-folder"
    )

    [finding] = [finding for finding in findings(settings) if finding.remedy]

    assert finding.name.startswith("listener")
    assert detail in finding.detail
    assert "sasl_ssl://" in finding.remedy


def test_each_listener_is_examined() -> None:
    settings = BrokerSettings(
        data="no-such-folder",
        authorizer="acls",
        listeners={
            "inner": ListenerConfig(listen="127.0.0.1:9092"),
            "outer": ListenerConfig(listen="10.0.0.5:9092"),
            "partners": ListenerConfig(listen="ssl://10.0.0.5:9093", client_auth="required"),
        },
    )

    assert open_names(settings) == ["listener outer"]
    assert [finding.name for finding in findings(settings)][:3] == [
        "listener inner",
        "listener outer",
        "listener partners",
    ]


def test_the_shared_bootstrap_address_is_a_listener() -> None:
    settings = BrokerSettings(bootstrap="0.0.0.0:9092", authorizer="acls", data="no-such-folder")

    assert open_names(settings) == ["listener bootstrap"]


@pytest.mark.parametrize(
    ("authorizer", "allow_everyone"), [("none", False), ("log", False), ("acls", True)]
)
def test_an_authorizer_that_denies_too_little_is_open(
    authorizer: str, allow_everyone: bool
) -> None:
    settings = BrokerSettings(
        listen="ssl://0.0.0.0:9092",
        security=MTLS,
        data="no-such-folder",
        authorizer=authorizer,  # type: ignore[arg-type] # one of the literals
        allow_everyone_if_no_acl=allow_everyone,
    )

    assert open_names(settings) == ["authorizer"]


@pytest.mark.parametrize("http", ["0.0.0.0:9644", "metrics.example.org:9644"])
def test_http_without_a_token_is_open(http: str) -> None:
    assert open_names(BrokerSettings(http_listen=http, data="no-such-folder")) == ["http"]


def test_files_that_other_users_can_read_are_open(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o755)
    settings = BrokerSettings(
        data=str(data),
        listen="sasl_ssl://127.0.0.1:9093",
        security=ListenerSecurity(
            certificate_file=with_mode(tmp_path / "broker.pem", 0o644),
            key_file=with_mode(tmp_path / "broker.key", 0o604),
        ),
        http_token_file=with_mode(tmp_path / "token", 0o640),
    )

    remedies = [finding.remedy for finding in findings(settings) if finding.remedy]

    assert remedies == [f"chmod 700 {data}", f"chmod 600 {tmp_path / 'broker.key'}"]


def test_a_certificate_file_can_contain_the_key(tmp_path: Path) -> None:
    path = with_mode(tmp_path / "broker.pem", 0o644)
    settings = BrokerSettings(
        data="no-such-folder",
        listen="sasl_ssl://127.0.0.1:9093",
        security=ListenerSecurity(certificate_file=path),
    )

    assert open_names(settings) == ["secret file"]


def test_kafka_directories_are_examined(tmp_path: Path) -> None:
    for name, mode in (("one", 0o700), ("two", 0o755)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    settings = BrokerSettings(log_dir=f"{tmp_path / 'one'},{tmp_path / 'two'}")

    [finding] = [finding for finding in findings(settings) if finding.remedy]

    assert finding.remedy == f"chmod 700 {tmp_path / 'two'}"


def test_etcd_without_tls_beyond_this_host_is_open() -> None:
    settings = BrokerSettings(
        store="s3://bucket/log", cluster="etcd://127.0.0.1:2379,10.0.0.5:2379"
    )

    [finding] = [finding for finding in findings(settings) if finding.remedy]

    assert finding.name == "cluster log"
    assert "10.0.0.5:2379" in finding.detail
    assert "127.0.0.1" not in finding.detail


def test_the_command_reports_the_given_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('[broker]\nlisten = "0.0.0.0:9092"\ndata = "no-such-folder"\n', "utf-8")

    code = main(["doctor", "--json", "--config", str(config)])

    answer = json.loads(capsys.readouterr().out)
    rows = {
        finding["name"]: finding["well"]
        for finding in answer["findings"]
        if finding["kind"] == "security"
    }
    assert code == 1
    assert rows == {
        "listener PLAINTEXT": False,
        "authorizer": False,
        "http": True,
        "data folder": True,
    }


def test_the_command_examines_a_properties_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "logs").mkdir(mode=0o700)
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"log.dirs={tmp_path / 'logs'}\nlisteners=PLAINTEXT://10.0.0.5:9092\n", "ascii"
    )

    assert main(["doctor", "--json", str(properties)]) == 1

    findings = json.loads(capsys.readouterr().out)["findings"]
    sick = {
        finding["name"]
        for finding in findings
        if finding["kind"] == "security" and not finding["well"]
    }
    assert sick == {"listener PLAINTEXT", "authorizer"}


def test_the_command_reports_settings_that_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "broker.toml"
    config.write_text('[broker]\nlisten = "smoke://0.0.0.0:9092"\n', "utf-8")

    assert main(["doctor", "--json", "--config", str(config)]) == 1

    assert "smoke" in capsys.readouterr().out
