"""Brokers whose log is checked and rebuilt without them."""

from __future__ import annotations

import io
import json
import secrets
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from rookery.cli.main import main
from rookery.testing.broker import BrokerProcess
from tests.cli.running import Done, Rookery

QUICK = ("--upkeep-interval-ms", "200", "--log-level", "warning")


class Broker:
    """A broker process that is stopped and started, and what was produced to it."""

    def __init__(self, folder: Path, flags: Sequence[str], where: Sequence[str]) -> None:
        self.process = BrokerProcess(folder, flags=[*flags, *QUICK])
        self.where = list(where)
        """The arguments that name the same log to other commands."""
        self.rookery = Rookery(self.process.bootstrap)

    def produce(self, topic: str, count: int, size: int = 20) -> list[bytes]:
        """Make the topic if need be, and send it records of random text; return them."""
        self.rookery("topics", "create", topic, "--if-not-exists")
        values = [secrets.token_hex(size // 2).encode() for _ in range(count)]
        self.rookery(
            "produce", topic, "--partition", "0", "--quiet", data=b"\n".join(values) + b"\n"
        )
        return values

    def consume(self, topic: str) -> dict[int, bytes]:
        """Return all records of partition 0 by their offsets."""
        said = self.rookery("consume", topic, "--partitions", "0", "--format", "json")
        lines = [json.loads(line) for line in said.splitlines()]
        return {line["offset"]: line["value"].encode() for line in lines}

    def fsck(self, *args: str) -> tuple[int, dict[str, Any]]:
        """Run `rookery fsck`; return its code and its answer."""
        return self._answer("fsck", *args)

    def recover(self, *args: str) -> tuple[int, dict[str, Any]]:
        """Run `rookery recover`; return its code and its answer."""
        return self._answer("recover", *args)

    def _answer(self, *args: str) -> tuple[int, dict[str, Any]]:
        done = run(*args, *self.where, "--json", "--quiet")
        assert done.stdout, done.stderr.decode()
        return done.returncode, json.loads(done.stdout)


def run(*args: str) -> Done:
    """Run a command that needs no broker, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(list(args))
    return Done(code, out.getvalue().encode(), err.getvalue().encode())
