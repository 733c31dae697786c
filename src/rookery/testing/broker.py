"""`rookery broker` as a process of a test: started, stopped, killed, and started again."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from rookery.testing.ports import HOST, free_ports
from rookery.testing.process import LoggedProcess
from rookery.testing.wait import PATIENCE_SECONDS, wait_until

_START_SECONDS: Final = 240.0


class BrokerProcess:
    """A broker of one or several processes over one folder, on ports that stay the same."""

    def __init__(self, folder: Path, *, workers: int = 1, flags: Sequence[str] = ()) -> None:
        """Choose ports; `start` runs it."""
        self.folder = folder
        self.log = folder.with_name(folder.name + ".log")
        self.workers = workers
        self.port = free_ports(workers + 1)
        self.http: list[str] = []
        """Where each process serves its metrics and health."""
        self.ready: dict[str, Any] = {}
        """Its output when it was ready: `bootstrap`, and `brokers` with node, port and pid."""
        self._flags = list(flags)
        self._process: LoggedProcess | None = None
        self._start_of_words = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.kill()

    @property
    def bootstrap(self) -> str:
        """Where clients begin."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The process that was started: the broker, or the supervisor of the workers."""
        return self._require_process().pid

    def worker_pids(self) -> list[int]:
        """Return the ids of the processes that serve clients, as of now."""
        if self.workers == 1:
            return [self.pid]
        return _children(self.pid)

    def command(self) -> list[str]:
        """Return the command line."""
        return [
            *(sys.executable, "-m", "rookery.cli.main", "broker", "--json"),
            *("--data", str(self.folder), "--listen", self.bootstrap),
            *("--http-listen", f"{HOST}:0", "--workers", str(self.workers)),
            *self._flags,
        ]

    def launch(self) -> None:
        """Start it without waiting until it is ready."""
        self._start_of_words = self.log.stat().st_size if self.log.exists() else 0
        self._process = LoggedProcess(self.command(), self.log)

    def start(self) -> dict[str, Any]:
        """Start it and return its output when it is ready."""
        self.launch()
        try:
            line = wait_until(self._ready_line, seconds=_START_SECONDS)
        except TimeoutError:
            said = self.words(self._start_of_words)
            raise TimeoutError(f"the broker is not ready:\n{said}") from None
        self.ready = json.loads(line)
        self.http = [broker["http"] for broker in self.ready["brokers"]]
        return self.ready

    def _ready_line(self) -> str:
        """Return what it says when it is ready; nothing until then."""
        status = self.ended(0)
        said = self.words(self._start_of_words)
        for line in said.splitlines(keepends=True):
            # A line without an end is incomplete.
            if line.startswith('{"bootstrap"') and line.endswith("\n"):
                return line
        if status is not None:
            raise RuntimeError(f"the broker ended with {status}:\n{said}")
        return ""

    def words(self, start: int = 0) -> str:
        """Return its output and its log, from a byte on."""
        return self.log.read_bytes()[start:].decode(errors="replace") if self.log.exists() else ""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process that was started."""
        os.kill(self.pid, number)

    def ended(self, within: float) -> int | None:
        """Return the exit status, waiting `within` seconds for it; None if it still runs."""
        status = self._require_process().ended(within)
        if status is not None:
            self._process = None
        return status

    def stop(self, within: float = PATIENCE_SECONDS) -> int:
        """Ask it to stop, and return its exit status."""
        self.signal(signal.SIGTERM)
        status = self.ended(within)
        if status is None:
            self.kill()
            raise TimeoutError(f"the broker did not stop within {within} s:\n{self.words()}")
        return status

    def kill(self) -> None:
        """End all its processes at once, and wait until their caretakers have noticed."""
        workers = self.worker_pids() if self.workers > 1 else []
        caretakers = [child for pid in (workers or [self.pid]) for child in _children(pid)]
        # The supervisor first: it would start new workers.
        self._require_process().kill()
        self._process = None
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in (*workers, *caretakers):
            wait_gone(pid)

    def _require_process(self) -> LoggedProcess:
        if self._process is None:
            raise RuntimeError("the broker does not run")
        return self._process


def _children(pid: int) -> list[int]:
    try:
        pids = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(pid) for pid in pids.split()]


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_gone(pid: int) -> None:
    """Wait for a process that is not a child of ours."""
    wait_until(lambda: not is_alive(pid), f"the end of process {pid}")
