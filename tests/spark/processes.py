"""A Spark driver as a process of its own, and the processes that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rookery.testing.wait import wait_until

JVM: Final = "org.apache.spark.deploy.SparkSubmit"
"""A part of the command line of the driver's Java."""
_LOOK_SECONDS: Final = 0.05
_PATIENCE: Final = 900.0


class Driver:
    """A program that runs Spark, and all that it has started."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it in a session of its own."""
        with self._log.open("ab") as words:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=words, stderr=words,
                start_new_session=True,
            )  # fmt: skip

    def ended(self) -> int | None:
        """Return its status if it has ended."""
        return self._process.poll() if self._process is not None else 0

    def processes(self, mark: str) -> list[int]:
        """Return those of its processes that have a text in their command line."""
        return family(self._process.pid, mark) if self._process is not None else []

    def clear(self) -> None:
        """Kill whatever is left of it: a host that went down would leave nothing, either."""
        if self._process is None:
            return
        for pid in family(self._process.pid):
            kill(pid)
        self._process.wait()

    def finish(self) -> None:
        """Run it, repeatedly if necessary, until it succeeds.

        Raises:
            TimeoutError: it does not.
        """

        def has_ended_well() -> bool:
            status = self.ended()
            if status:
                self.clear()
                self.start()
            return status == 0

        try:
            wait_until(has_ended_well, seconds=_PATIENCE, pause=_LOOK_SECONDS)
        except TimeoutError:
            words = self._log.read_text(errors="replace")[-5000:]
            raise TimeoutError(f"{self._command} does not end well:\n{words}") from None


def family(leader: int, mark: str = "") -> list[int]:
    """Return the processes of a session, which Spark's Python workers stay in, too.

    Args:
        leader: the session's first process.
        mark: a text that must be in the command line.
    """
    pids = [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if _session_of(pid) == leader and mark in _command_line(pid)]


def kill(pid: int) -> None:
    """End a process without a word; it may have ended by itself."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
