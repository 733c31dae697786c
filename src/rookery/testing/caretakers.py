"""A caretaker without a broker: the test sets its options, and can kill it at any step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from threading import Thread
from time import sleep
from types import TracebackType
from typing import Any, Final, Self

from rookery.broker.settings import BrokerSettings
from rookery.testing.wait import PATIENCE_SECONDS, wait_until

_AGREE_SECONDS: Final = 0.1
_COMMAND: Final = (sys.executable, "-m", "rookery.broker.storage.caretaker")


class CaretakerProcess:
    """The child process that a broker would keep; its brokers run with `--caretaker off`."""

    def __init__(self, settings: BrokerSettings, log: Path) -> None:
        """Store the options; entering a `with` block starts it."""
        self._settings = settings
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

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

    def start(self) -> None:
        """Start it and send it its settings."""
        with self._log.open("ab") as output:
            process = subprocess.Popen(
                _COMMAND, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT
            )
        assert process.stdin is not None  # noqa: S101 (it is a pipe)
        # Left open: it ends when the pipe of its broker, which is this process, closes.
        process.stdin.write(json.dumps(asdict(self._settings)).encode() + b"\n")
        process.stdin.flush()
        self._process = process
        Thread(target=self._agree, args=(process, len(self.reports())), daemon=True).start()

    def reports(self) -> list[dict[str, Any]]:
        """Return its reports after each round, over all its restarts."""
        text = self._log.read_text("utf-8", "replace") if self._log.exists() else ""
        lines = [line for line in text.splitlines(keepends=True) if line.startswith("{")]
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def wait_for_rounds(self, more: int = 1) -> None:
        """Wait until it has completed `more` further rounds."""
        goal = len(self.reports()) + more

        def rounds() -> int:
            status, done = self._require_process().poll(), len(self.reports())
            if status is not None and done < goal:
                raise RuntimeError(f"the caretaker ended with {status}:\n{self.words()}")
            return done

        wait_until(rounds, f"{goal} rounds of maintenance", accepts=lambda done: done >= goal)

    def words(self) -> str:
        """Return the end of its output and log."""
        return self._log.read_text("utf-8", "replace")[-3_000:]

    def ended(self, within: float = PATIENCE_SECONDS) -> int:
        """Wait for its end, and return its exit status."""
        status = self._require_process().wait(within)
        self._forget()
        return status

    def stop(self) -> int:
        """Stop it in order, as its broker would."""
        stdin = self._require_process().stdin
        if stdin is not None:
            stdin.close()
        return self.ended()

    def kill(self) -> None:
        """End it at once."""
        self._require_process().kill()
        self._require_process().wait()
        self._forget()

    def pause(self) -> None:
        """Suspend it (SIGSTOP)."""
        os.kill(self._require_process().pid, signal.SIGSTOP)

    def resume(self) -> None:
        """End `pause`."""
        os.kill(self._require_process().pid, signal.SIGCONT)

    def _agree(self, process: subprocess.Popen[bytes], seen: int) -> None:
        """Confirm its snapshots as the broker would; it trims the log up to confirmed ones only."""
        while process.poll() is None:
            reports = self.reports()[seen:]
            seen += len(reports)
            if reports and process.stdin is not None:
                with suppress(OSError, ValueError):  # it has ended meanwhile
                    process.stdin.write(b"%d\n" % reports[-1]["snapshot"])
                    process.stdin.flush()
            sleep(_AGREE_SECONDS)

    def _require_process(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the caretaker does not run")
        return self._process

    def _forget(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
