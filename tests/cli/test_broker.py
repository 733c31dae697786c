"""`rookery broker`: its settings and what it prints."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from rookery.broker.serve import BrokerInfo
from rookery.cli import main
from rookery.cli.commands.broker import _tell


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ROOKERY_CONFIG", raising=False)


def served(node_id: int, http: str = "127.0.0.1:9644") -> BrokerInfo:
    return BrokerInfo(
        node_id=node_id,
        address=f"127.0.0.1:{9092 + node_id}",
        http=http,
        cluster_id="abc",
        data="/data",
        durability="disk",
        pid=1,
    )


def test_the_defaults_are_the_embedded_broker(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["broker", "--print-config"]) == 0

    printed = tomllib.loads(capsys.readouterr().out)["broker"]
    assert printed["data"] == "rookery-data"
    assert printed["listen"] == "127.0.0.1:9092"
    assert printed["durability"] == "disk"
    assert printed["workers"] == 1


def test_settings_table_of_no_known_part_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "own.toml"
    file.write_text('[clusters.prod]\nstore = "s3://b"\n\n[brokr]\npartitions = 3\n')
    assert main.main(["broker", "--config", str(file), "--print-config"]) == 2
    assert f"brokr: unknown; did you mean broker? ({file}:4)" in capsys.readouterr().err


def test_flags_win_over_the_environment_and_that_over_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "own.toml"
    file.write_text('[broker]\npartitions = 3\nrack = "file"\ndurability = "os"\n')
    monkeypatch.setenv("ROOKERY_BROKER_RACK", "environment")
    monkeypatch.setenv("ROOKERY_BROKER_DURABILITY", "os")

    flags = ["--config", str(file), "--durability", "disk", "--print-config", "--json"]
    assert main.main(["broker", *flags]) == 0

    printed = json.loads(capsys.readouterr().out)["broker"]
    assert printed["partitions"] == {"value": 3, "source": f"{file}:2"}
    assert printed["rack"]["value"] == "environment"
    assert printed["durability"] == {"value": "disk", "source": "flag --durability"}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--workers", "0"], "broker.workers: must be a whole number from 1 to 256"),
        (["--durability", "none"], "broker.durability: must be one of disk, os"),
        (["--log-level", "loud"], "broker.log-level: must be one of debug"),
        (["--listen", "nowhere"], "listen: 'nowhere' is not host:port"),
        (["--config", "missing.toml"], "missing.toml"),
        (
            ["--workers", "2", "--bootstrap", "127.0.0.1:1"],
            "bootstrap: with workers the shared address is that of `listen`",
        ),
    ],
)
def test_invalid_setting_is_reported_with_exit_code_2(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["broker", *flags]) == 2

    assert message in capsys.readouterr().err


def test_greeting_shows_addresses_and_durability(capsys: pytest.CaptureFixture[str]) -> None:
    _tell([served(1)], as_json=False)

    text = capsys.readouterr().out
    assert "clients     127.0.0.1:9093" in text
    assert "data        /data: every record is synced to disk" in text
    assert "http://127.0.0.1:9644/health/ready" in text
    assert "cluster id  abc" in text
    assert "kcat -b 127.0.0.1:9093" in text
    assert "Ctrl-C" in text


def test_greeting_of_a_broker_without_durability_suggests_no_write(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _tell([replace(served(1), durability="none")], as_json=False)

    text = capsys.readouterr().out
    assert "nothing is written" in text
    assert "-P" not in text


def test_the_greeting_of_workers_names_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    _tell([served(1), served(2, http="")], "127.0.0.1:9092", as_json=False)

    text = capsys.readouterr().out
    assert "brokers 1 on 127.0.0.1:9093, 2 on 127.0.0.1:9094" in text
    assert "clients     127.0.0.1:9092" in text


def test_the_greeting_for_scripts_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    _tell([served(1, http="")], as_json=True)

    line = capsys.readouterr().out
    assert line.count("\n") == 1
    assert json.loads(line)["bootstrap"] == "127.0.0.1:9093"
