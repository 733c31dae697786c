"""The `rookery` command: finding a subcommand, help, and exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType

import pytest

from rookery.cli import command, commands, main
from rookery.cli.command import Command, CommandArguments, print_json
from rookery.errors import ApiError, ConfigError, ErrorCode


def _install(monkeypatch: pytest.MonkeyPatch, outcome: BaseException | int) -> None:
    """Add a command that does what the test wants."""

    def run(args: CommandArguments) -> int:
        if isinstance(outcome, BaseException):
            raise outcome
        print_json({"json": args.json})
        return outcome

    sample = ModuleType("sample")
    sample.__dict__["COMMAND"] = Command(
        arguments=CommandArguments, run=run, summary="Try.", example="rookery sample"
    )
    monkeypatch.setattr(command, "find_commands", lambda *_: [("sample", sample)])


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(["--help"])

    assert caught.value.code == 0
    assert "doctor" in capsys.readouterr().out


def test_every_command_has_an_example_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    names = [name for name, _ in command.find_commands(commands, None)]
    assert len(names) > 15

    for name in names:
        with pytest.raises(SystemExit):
            main.main([name, "--help"])
        text = capsys.readouterr().out
        assert f"example:\n  rookery {name}" in text
        assert "--json" in text


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("rookery ")


def test_version_flag_before_a_command_is_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--version", "topics", "list"]) == 0
    assert capsys.readouterr().out.startswith("rookery ")


def test_no_command_shows_help_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 2
    assert "usage: rookery" in capsys.readouterr().out


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main.main(["nonsense"])

    assert caught.value.code == 2
    assert "nonsense" in capsys.readouterr().err


def test_a_commands_exit_code_and_arguments_pass_through(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _install(monkeypatch, 7)

    assert main.main(["sample", "--json"]) == 7
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

    assert main.main(["sample"]) == code
    assert capsys.readouterr().err == text


def test_unexpected_exception_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    _install(monkeypatch, ZeroDivisionError())

    with pytest.raises(ZeroDivisionError):
        main.main(["sample"])


def test_closed_output_pipe_is_not_an_error() -> None:
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
    assert "rookery.cli.commands.doctor" in loaded
    heavy = {"asyncio", "rich", "pyarrow", "pyspark", "obstore", "ssl", "uvloop"}
    assert not loaded & {*heavy, "rookery.wire.codec"}


def test_a_call_imports_its_own_command_only() -> None:
    code = (
        "import sys; from rookery.cli.main import make_parser; make_parser(['topics', 'list']);"
        "print(*sorted(sys.modules))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    folder = "rookery.cli.commands."
    loaded = {name for name in done.stdout.split() if name.startswith(folder)}
    assert loaded == {f"{folder}topics", f"{folder}topics.list"}
