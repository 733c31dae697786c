"""Commands that run a server: its settings by flag, variable and file, shown or used."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from rookery.cli.options.fields import add_arguments, read_arguments
from rookery.cli.options.server import (
    ConfiguredSettings,
    ServerArguments,
    run_configured,
    settings_flags,
)
from rookery.errors import ConfigError
from rookery.service import logs


@dataclass(frozen=True)
class NestSettings:
    """Settings of a server."""

    twigs: int = 7
    """How many."""
    log_level: str = "info"
    """The warnings of a start."""


@dataclass(frozen=True, kw_only=True)
class ServeNest(ServerArguments):
    """Arguments of a command."""

    flags: Mapping[str, object] = settings_flags(lambda: NestSettings)


def run(*words: str, as_json: bool = False) -> tuple[int, list[NestSettings]]:
    """Run the command; return its exit code and the settings that it served with."""
    parser = argparse.ArgumentParser()
    add_arguments(parser, ServeNest)
    args = read_arguments(ServeNest, {**vars(parser.parse_args(words)), "json": as_json})
    served: list[NestSettings] = []

    async def serve(configured: ConfiguredSettings[NestSettings]) -> int:
        served.append(configured.settings)
        return 5

    return run_configured(args, NestSettings, "broker", serve), served


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The levels that log lines were set up with; this process keeps its own."""
    levels: list[str] = []
    monkeypatch.setattr(logs, "set_up", levels.append)
    return levels


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, levels: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROOKERY_CONFIG", raising=False)


def test_the_server_gets_the_settings_and_gives_the_exit_code(
    tmp_path: Path, levels: list[str]
) -> None:
    (tmp_path / "rookery.toml").write_text("[broker]\ntwigs = 8\n")
    assert run() == (5, [NestSettings(8)])
    assert run("--twigs", "9", "--log-level", "debug") == (5, [NestSettings(9, "debug")])
    assert levels == ["info", "debug"]


def test_settings_can_be_printed_instead_of_starting(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--print-config") == (0, [])
    shown = '[broker]\ntwigs = 7  # default\nlog-level = "info"  # default\n'
    assert capsys.readouterr().out == shown
    assert run("--print-config", as_json=True) == (0, [])
    read = json.loads(capsys.readouterr().out)["broker"]
    assert read["twigs"] == {"value": 7, "source": "default"}


def test_misspelt_names_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROOKERY_BROKER_TWIG", "3")
    assert run()[0] == 5
    assert "did you mean ROOKERY_BROKER_TWIGS?" in capsys.readouterr().err
    (tmp_path / "rookery.toml").write_text("[brokr]\n")
    with pytest.raises(ConfigError, match="did you mean broker"):
        run()
