"""Brokers that other hosts can reach must ask for a login, unless they may be open."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from rookery.broker.process.exposure import check_exposure
from rookery.broker.process.workers import BrokerWorkers
from rookery.broker.settings import BrokerSettings
from rookery.cli.main import main
from rookery.errors import ConfigError
from rookery.service.listen.listenersettings import ListenerConfig, ListenerSecurity
from rookery.testing.broker import BrokerProcess

MTLS = ListenerSecurity(client_auth="required")


@pytest.mark.parametrize(
    "settings",
    [
        BrokerSettings(),
        BrokerSettings(listen="localhost:9092", http_listen="[::1]:9644"),
        BrokerSettings(listen=":9092"),
        BrokerSettings(listen="ssl://:9092"),
        BrokerSettings(listen="sasl_ssl://0.0.0.0:9092"),
        BrokerSettings(listen="sasl_plaintext://10.0.0.5:9092"),
        BrokerSettings(listen="ssl://0.0.0.0:9092", security=MTLS),
        BrokerSettings(listen="127.0.0.5:9092", http_listen=""),
        BrokerSettings(http_listen="0.0.0.0:9644", http_token_file="x.txt"),  # noqa: S106 (a path)
        BrokerSettings(listen="0.0.0.0:9092", http_listen="0.0.0.0:9644", insecure=True),
    ],
)
def test_closed_brokers_are_accepted(settings: BrokerSettings) -> None:
    check_exposure(settings)


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (BrokerSettings(listen="0.0.0.0:9092"), "listen"),
        (BrokerSettings(listen="[::]:9092"), "listen"),
        (BrokerSettings(listen="kafka-1.example.org:9092"), "listen"),
        (BrokerSettings(listen="ssl://0.0.0.0:9092"), "listen"),
        (BrokerSettings(bootstrap="0.0.0.0:9092"), "listen"),
        (
            BrokerSettings(
                listeners={
                    "inner": ListenerConfig(listen="127.0.0.1:9092"),
                    "outer": ListenerConfig(listen="plaintext://10.0.0.5:9092"),
                }
            ),
            "the listener outer",
        ),
        (BrokerSettings(http_listen="0.0.0.0:9644"), "http_listen"),
    ],
)
def test_open_brokers_are_refused(settings: BrokerSettings, name: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        check_exposure(settings)
    assert "--insecure" in str(caught.value)


def test_the_command_refuses_before_it_creates_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"

    assert main(["broker", "--data", str(data), "--listen", "0.0.0.0:0"]) == 2

    assert "--secure" in capsys.readouterr().err
    assert not data.exists()


async def test_workers_are_refused_together(tmp_path: Path) -> None:
    settings = BrokerSettings(data=str(tmp_path), listen="0.0.0.0:0", workers=2)

    with pytest.raises(ConfigError, match="--insecure"):
        BrokerWorkers(settings, lambda _brokers: None)


def test_files_of_a_broker_belong_to_its_owner(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", flags=["--durability", "os"]) as broker:
        paths = list(broker.folder.rglob("*"))
        folders = {stat.S_IMODE(broker.folder.stat().st_mode)}
        open_files = [
            path.name
            for path in paths
            if path.is_file() and stat.S_IMODE(path.stat().st_mode) & 0o077
        ]

    assert folders == {0o700}
    assert any(path.suffix for path in paths)
    assert open_files in ([], ["boot-id"])
