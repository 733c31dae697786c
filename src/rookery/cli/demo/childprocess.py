"""A child process, and the children of its own that outlive it: a lock on its log shows both."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from rookery.cli.demo.demofolder import HeldSignals
from rookery.clock import loop_seconds
from rookery.errors import Unavailable
from rookery.net.loop import run_loop

_STOP_SECONDS: Final = 10.0
_END_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.01


class ChildProcess:
    """One process at a time, and its log.

    A killed broker does not end its caretaker, which ends soon after, but can create files until
    then. Children inherit the log as their standard error, and a lock with it: the log is free
    when the last of them has ended.
    """

    def __init__(self, log: Path) -> None:
        """Start nothing.

        Args:
            log: the file for the output; its folder is the working folder.
        """
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self, command: Sequence[str]) -> None:
        """Start a process; do not wait for it."""
        signals = HeldSignals()
        with self.log.open("ab") as output:
            fcntl.flock(output, fcntl.LOCK_SH)
            signals.hold()  # until it is known which process is to be ended
            try:
                self._process = subprocess.Popen(  # noqa: S603 (our own program)
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C is for us; we end the child ourselves.
                    start_new_session=True,
                    cwd=self.log.parent,
                )
            finally:
                signals.release()

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs, and if none was started."""
        return None if self._process is None else self._process.poll()

    def wait(self) -> int | None:
        """Return the exit status when it has ended; None if none was started."""
        return None if self._process is None else self._process.wait()

    def words(self, lines: int = 15) -> str:
        """Return the end of the log."""
        return "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-lines:])

    def kill(self) -> None:
        """End it as a crash would (kill -9), with all processes of its group."""
        if self._process is not None:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Let it stop in order; kill it if that takes too long."""
        if self._process is None:
            return
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        self.kill()

    def end(self) -> None:
        """Kill it, and return when none of its children writes any more.

        Raises:
            Unavailable: one does not end.
        """
        self.kill()
        if self._is_log_in_use():
            run_loop(self._wait_until_log_is_free())

    async def _wait_until_log_is_free(self) -> None:
        begin = loop_seconds()
        while self._is_log_in_use():
            if loop_seconds() - begin > _END_SECONDS:
                raise Unavailable(
                    f"a process of the demo still runs after {_END_SECONDS:g} s: end the process "
                    f"that writes to {self.log}, then remove {self.log.parent}"
                )
            await asyncio.sleep(_POLL_SECONDS)

    def _is_log_in_use(self) -> bool:
        if not self.log.exists():
            return False
        with self.log.open("rb") as log:
            try:
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False
