"""Which environment goes to Spark's hosts, by the arguments of a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.cli.main import make_parser
from rookery.cli.options.fields import read_arguments
from rookery.cli.options.spark import SparkOptions
from rookery.cli.sparkplace import find_archive
from rookery.errors import ConfigError
from rookery.spark.environment.contents import ArchiveContents

_COMMANDS = (["pipeline", "run", "birds.toml"], ["job", "scrub"])
_ELSEWHERE = ["--master", "spark://head:7077"]


def _archive(*words: str) -> Path | None:
    parsed = vars(make_parser().parse_args(words))
    options = read_arguments(SparkOptions, parsed, "spark.")
    return find_archive(options, remote=parsed.get("spark.remote"))


@pytest.mark.parametrize("command", _COMMANDS)
def test_local_or_installed_spark_needs_no_archive(command: list[str]) -> None:
    assert _archive(*command) is None
    assert _archive(*command, "--master", "local[2]", "--archive", "a.tar.gz") is None
    assert _archive(*command, *_ELSEWHERE, "--installed") is None


@pytest.mark.parametrize("command", _COMMANDS)
def test_archive_given_by_the_user_is_used(command: list[str]) -> None:
    assert _archive(*command, *_ELSEWHERE, "--archive", "a.tar.gz") == Path("a.tar.gz")


def test_archive_and_installed_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _archive("job", "scrub", *_ELSEWHERE, "--archive", "a.tar.gz", "--installed")
    assert "not allowed with" in capsys.readouterr().err


def test_spark_server_takes_no_archive() -> None:
    assert _archive("job", "scrub", "--remote", "sc://head") is None
    with pytest.raises(ConfigError, match="--archive with --remote"):
        _archive("job", "scrub", "--remote", "sc://head", "--archive", "a.tar.gz")


@pytest.mark.parametrize("command", _COMMANDS)
def test_previously_packed_archive_is_used_by_default(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    packed = tmp_path / "rookery" / "environments" / f"{ArchiveContents.of().fingerprint()}.tar.gz"
    packed.parent.mkdir(parents=True)
    packed.touch()

    assert _archive(*command, *_ELSEWHERE) == packed
    assert capsys.readouterr().err == ""
