from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from rookery.cli import main as cli
from rookery.cli.command import Subparsers, add_command, print_json
from rookery.errors import ApiError, ConfigError, ErrorCode


class _Sample(ModuleType):
    """A command that does what the test wants."""

    def __init__(self, outcome: BaseException | int) -> None:
        super().__init__("sample")
        self._outcome = outcome

    def add(self, subparsers: Subparsers) -> None:
        add_command(subparsers, "sample", self._run, summary="Try.", example="rookery sample")

    def _run(self, args: argparse.Namespace) -> int:
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        print_json({"json": args.json})
        return self._outcome


def _install(monkeypatch: pytest.MonkeyPatch, outcome: BaseException | int) -> None:
    def commands() -> Iterator[ModuleType]:
        yield _Sample(outcome)

    monkeypatch.setattr(cli, "_commands", commands)


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])

    assert caught.value.code == 0
    assert "doctor" in capsys.readouterr().out


def test_every_command_has_an_example_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    names = [module.__name__.rpartition(".")[2] for module in cli._commands()]
    assert names

    for name in names:
        with pytest.raises(SystemExit):
            cli.main([name, "--help"])
        text = capsys.readouterr().out
        assert f"example:\n  rookery {name}" in text
        assert "--json" in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("rookery ")


def test_no_command_shows_help_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    assert "usage: rookery" in capsys.readouterr().out


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["nonsense"])

    assert caught.value.code == 2
    assert "nonsense" in capsys.readouterr().err


def test_a_commands_exit_code_and_arguments_pass_through(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _install(monkeypatch, 7)

    assert cli.main(["sample", "--json"]) == 7
    assert capsys.readouterr().out == '{\n  "json": true\n}\n'


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ConfigError("listen: bad"), 2, "rookery sample: listen: bad\n"),
        (ApiError(ErrorCode.INVALID_CONFIG, "x"), 1, "rookery sample: INVALID_CONFIG: x\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_become_one_line_and_an_exit_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    text: str,
) -> None:
    _install(monkeypatch, error)

    assert cli.main(["sample"]) == code
    assert capsys.readouterr().err == text


def test_a_defect_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, ZeroDivisionError())

    with pytest.raises(ZeroDivisionError):
        cli.main(["sample"])


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    code = "import sys; from rookery.cli.main import main; sys.exit(main(['doctor', '--json']))"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # With a buffer, as users have it: what is left in it is written at the very end.
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        complaint = process.stderr.read()

    assert b"Traceback" not in complaint
    assert b"BrokenPipe" not in complaint


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from rookery.cli.main import make_parser; make_parser().format_help();"
        "print(*sorted(sys.modules))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    loaded = set(done.stdout.split())
    assert "rookery.cli.doctor" in loaded
    assert not loaded & {"asyncio", "rich", "pyarrow", "ssl", "rookery.wire.codec", "uvloop"}
