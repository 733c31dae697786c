"""The command line as users run it."""

from __future__ import annotations

import io
import json
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from itertools import count
from typing import Any, NamedTuple
from unittest.mock import patch

from rookery.cli.main import main

_numbers = count(1)


def command(*args: str) -> list[str]:
    """The command line of a `rookery` command."""
    return [sys.executable, "-m", "rookery.cli.main", *args]


class Done(NamedTuple):
    """How a command ended, and what it said."""

    returncode: int
    stdout: bytes
    stderr: bytes


class Rookery:
    """Runs `rookery` against one broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def command(self, *args: str) -> list[str]:
        """The command line, with the broker's address."""
        return command(*args, "--bootstrap", self.bootstrap)

    def run(self, *args: str, data: bytes = b"") -> Done:
        """Run it to its end, whatever that is; in this process, which saves half a second."""
        said, warned = io.BytesIO(), io.BytesIO()
        out, err = io.TextIOWrapper(said, "utf-8"), io.TextIOWrapper(warned, "utf-8")
        with tempfile.TemporaryFile() as stdin, redirect_stdout(out), redirect_stderr(err):
            stdin.write(data)
            stdin.seek(0)
            with patch.object(sys, "stdin", stdin):
                code = _main([*args, "--bootstrap", self.bootstrap])
        out.flush()
        err.flush()
        return Done(code, said.getvalue(), warned.getvalue())

    def __call__(self, *args: str, data: bytes = b"") -> bytes:
        """Return what it printed; it must end well."""
        done = self.run(*args, data=data)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def json(self, *args: str, data: bytes = b"") -> Any:
        """Return what it answers in JSON."""
        return json.loads(self(*args, "--json", data=data))

    def topic(self, *args: str) -> str:
        """Create a topic that no other test uses."""
        name = f"cli-{next(_numbers)}"
        self("topics", "create", name, *args)
        return name


def _main(args: list[str]) -> int:
    try:
        return main(args)
    except SystemExit as end:
        return int(end.code or 0)
