"""Servers as processes of tests, alone or several together; each writes one log file.

    with SomeServer() as server:
        ...

They listen on ports that stay the same when they are started again, serve the same data then, and
are gone after the block.
"""

from __future__ import annotations

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

from rookery.errors import Unavailable
from rookery.testing.folder import WorkFolder
from rookery.testing.process import LoggedProcess
from rookery.testing.wait import wait_until

_PAUSE_SECONDS: Final = 0.05
# Three servers may share one busy core.
_START_SECONDS: Final = 240.0


class Lifetime(ABC):
    """A server that a `with` block starts, kills and removes."""

    def __init__(self, home: WorkFolder) -> None:
        self._home = home

    @abstractmethod
    def launch(self) -> None:
        """Start without waiting; if that fails, nothing is left running."""

    @abstractmethod
    def wait_ready(self) -> None:
        """Return when clients are served.

        Raises:
            Unavailable: a process ended, or was not ready in time; the text has its last words.
        """

    @abstractmethod
    def kill(self) -> None:
        """End as a crash would (SIGKILL)."""

    def start(self) -> None:
        """Start, and return when clients are served; if that fails, nothing is left running.

        Raises:
            Unavailable: see `wait_ready`.
        """
        self.launch()
        try:
            self.wait_ready()
        except BaseException:
            self.kill()
            raise

    def close(self) -> None:
        """End, and remove the folder, unless the folder was given."""
        self.kill()
        self._home.remove()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class TestServer(Lifetime):
    """One server: start, stop, kill, pause; start again with the same data."""

    STOP_SECONDS = 60.0
    """The time limit of an orderly shutdown."""

    def __init__(self, title: str, log: Path, home: WorkFolder) -> None:
        """Make the folder of the log; start nothing.

        Args:
            title: its name in errors.
            log: the file for its output.
            home: the folder that `close` removes.
        """
        super().__init__(home)
        self.log = log
        """The output of the server, over all its starts."""
        self._title = title
        self._process: LoggedProcess | None = None
        self._log_start = 0
        self._is_paused = False
        log.parent.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def _command(self) -> list[str]:
        """Return the command line, with everything in place that it needs."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Return whether it serves clients."""

    @property
    def pid(self) -> int:
        """Return the id of the running process."""
        return self._require_process().pid

    @property
    def is_running(self) -> bool:
        """Return whether the process lives, paused or not."""
        return self._process is not None and self._process.ended() is None

    @property
    def is_paused(self) -> bool:
        """Return whether the process is suspended."""
        return self._is_paused

    def launch(self) -> None:
        """Start the process without waiting for it."""
        if self.is_running:
            raise RuntimeError(f"{self._title} runs already, as process {self.pid}")
        command = self._command()
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self._process = LoggedProcess(command, self.log)

    def wait_ready(self) -> None:
        """Return when the server serves clients."""
        self._wait_until(self._is_ready)

    def stop(self) -> int | None:
        """Let the server shut down in order; kill it if it takes too long.

        Returns:
            The exit status; None if there was nothing to stop.
        """
        if self._process is None:
            return None
        self.resume()
        status = self._process.stop(self.STOP_SECONDS)
        self._process = None
        return status

    def kill(self) -> None:
        """End the process as a crash would (SIGKILL)."""
        if self._process is not None:
            self._process.kill()
            self._process = None
            self._is_paused = False

    def restart(self) -> None:
        """Stop in order if it runs, then start with the same ports and data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Suspend the process (SIGSTOP): the system accepts connections, but nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        """End `pause`."""
        if self._is_paused:
            os.kill(self.pid, signal.SIGCONT)
            self._is_paused = False

    def last_words(self, lines: int = 40) -> str:
        """Return the end of the server's log, without earlier starts."""
        return "\n".join(self._words().splitlines()[-lines:])

    def _words(self) -> str:
        """Return the output of the last start."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode("utf-8", "replace")

    def _wait_until(self, is_ready: Callable[[], bool]) -> None:
        process = self._require_process()

        def look() -> bool:
            if is_ready():
                return True
            if (status := process.ended()) is not None:
                raise self._make_error(f"ended with status {status} before it was ready")
            return False

        try:
            wait_until(look, seconds=_START_SECONDS, pause=_PAUSE_SECONDS)
        except TimeoutError:
            raise self._make_error("was not ready in time") from None

    def _require_process(self) -> LoggedProcess:
        if self._process is None:
            raise RuntimeError(f"{self._title} is not running: start it first")
        return self._process

    def _make_error(self, what: str) -> Unavailable:
        return Unavailable(f"{self._title} {what}; from {self.log}:\n{self.last_words()}")


AnyServer = TypeVar("AnyServer", bound=TestServer)


class Servers(Lifetime, Generic[AnyServer]):
    """Several servers that know each other."""

    def __init__(self, members: Sequence[AnyServer], home: WorkFolder) -> None:
        super().__init__(home)
        self._members = members

    def launch(self) -> None:
        """Start the processes of all that do not run, without waiting for them."""
        try:
            for member in self._members:
                if not member.is_running:
                    member.launch()
        except BaseException:
            self.kill()
            raise

    def wait_ready(self) -> None:
        """Return when all serve clients."""
        for member in self._members:
            member.wait_ready()

    def kill(self) -> None:
        """End all as a crash would (SIGKILL)."""
        for member in self._members:
            member.kill()
