"""A program as a process of a test: started, stopped or killed, and never left running."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path


class LoggedProcess:
    """A running program whose output goes to a log file.

    It does not outlive the process that started it, not even when that one is killed: a small
    shell waits on a pipe that closes with its holder, then kills the program.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        with log.open("ab") as output:
            self._popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        self._leash = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r _; kill -9 "$0"', str(self._popen.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Tests handle an interrupt from the keyboard themselves, and stop the program in order.
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Return the program's process id."""
        return self._popen.pid

    def ended(self, within: float = 0.0) -> int | None:
        """Return the exit status, waiting that many seconds for it; None if it still runs."""
        try:
            status = self._popen.wait(within)
        except subprocess.TimeoutExpired:
            return None
        self._unleash()
        return status

    def terminate(self) -> None:
        """Ask the program to end; do not wait."""
        self._popen.terminate()

    def stop(self, grace: float) -> int:
        """Ask the program to end, kill it if it does not, and return its exit status."""
        self.terminate()
        status = self.ended(grace)
        return self.kill() if status is None else status

    def kill(self) -> int:
        """End the program at once (SIGKILL), and return its exit status."""
        self._popen.send_signal(signal.SIGKILL)
        status = self._popen.wait()
        self._unleash()
        return status

    def _unleash(self) -> None:
        # First the shell, then the pipe: it must not see the pipe close while it lives, for the
        # program's id may by then be another's.
        self._leash.kill()
        self._leash.wait()
        if self._leash.stdin is not None:
            self._leash.stdin.close()
