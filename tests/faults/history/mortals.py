"""Workers in separate processes, which can be killed with -9 and restarted.

    run ──► Mortal ──► python -m tests.faults.history.mortals ──► any Worker
              ▲ lines of the history, through a pipe ◄──────────────┘

What a worker has written into the pipe outlives it, and it writes before it acts: so no answer that
it had is forgotten, and what it had under way has a beginning without an end. A later life has the
number of it in its name, and the same transactional id.
"""

from __future__ import annotations

import pickle
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE, Popen
from threading import Event, Lock
from typing import Final

from tests.faults.history.events import History
from tests.faults.history.worker import Worker

Make = Callable[[str, str, History, int], Worker]
"""Makes a worker of a name, where clients begin, a history and a seed; can be pickled."""

_ROOT: Final = Path(__file__).parents[3]
_AGAIN_SECONDS: Final = 0.5


class Mortal(Worker):
    """Runs a worker in a process, and starts the next one if it was killed."""

    def __init__(self, make: Make, name: str, bootstrap: str, history: History, seed: int) -> None:
        super().__init__(name, bootstrap, history, seed)
        self._make = make
        self._seed = seed
        self._lives = 0
        self._process: Popen[bytes] | None = None
        self._lock = Lock()

    def live(self) -> None:
        """Pass on the lines of one process, until its end."""
        self._lives += 1
        name = f"{self.name}.{self._lives}"
        command = [sys.executable, "-X", "faulthandler", "-m", __name__]
        with Popen(command, stdin=PIPE, stdout=PIPE, cwd=_ROOT) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            spec = (self._make, name, self.bootstrap, self.history.zero, self._seed)
            pickle.dump(spec, process.stdin)
            process.stdin.flush()
            with self._lock:
                self._process = process
            if self.stopping.is_set():
                self.stop()
            for line in process.stdout:
                # An incomplete line does not count: its action was not done.
                if line.endswith(b"\n"):
                    self.history.relay(line.decode())
        with self._lock:
            self._process = None
        if process.returncode > 0:
            raise AssertionError(f"{name} ended with code {process.returncode}, see above")
        self.stopping.wait(_AGAIN_SECONDS)

    def join(self) -> None:
        """Wait for the end; a process that hangs shows its stacks, and ends."""
        try:
            super().join()
        except TimeoutError:
            with self._lock:
                if self._process is not None:
                    # faulthandler shows the stacks, whether Python code can run or not.
                    self._process.send_signal(signal.SIGABRT)
            raise

    def kill(self) -> str:
        """Kill the process with -9; return its name."""
        with self._lock:
            if self._process is None:
                return "nobody"
            self._process.kill()
        return f"{self.name}.{self._lives}"

    def pause(self, stopping: Event, seconds: float) -> str:
        """Suspend the process for a time, or until the run stops; return its name."""
        with self._lock:
            process = self._process
        if process is None:
            return "nobody"
        process.send_signal(signal.SIGSTOP)
        try:
            stopping.wait(seconds)
        finally:
            # A process that has ended gets no signal.
            process.send_signal(signal.SIGCONT)
        return f"{self.name}.{self._lives}"

    def stop(self) -> None:
        """Ask for the end, by closing the pipe."""
        super().stop()
        with self._lock:
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()


def main() -> None:
    """Run one client until the other end of the pipe is closed, or its process is gone."""
    make, name, bootstrap, zero, seed = pickle.load(sys.stdin.buffer)
    worker: Worker = make(name, bootstrap, History(sys.stdout, zero), seed)
    worker.start()
    sys.stdin.buffer.read()
    worker.stop()
    worker.join()


if __name__ == "__main__":
    main()
