"""A worker daemon for Spark that does not collect garbage after every task.

Spark's own daemon collects all of it after each task, which takes 20 ms once pyarrow and pandas are
loaded: several times what a small task costs. A worker of this daemon sets aside what its first
task left (modules, mostly) so that it is never looked at again, and then collects after every 50th
task. Set `spark.python.daemon.module=rookery.spark.daemon`, as `rookery.spark.session` does.

Its workers also end with it. If a job fails while a worker is being started for it, Spark replaces
the daemon, which tells its workers to end; but the newest worker may not listen to that yet, and
then waits for a task until Spark ends.

A worker whose task was cancelled, or whose rows are not needed any more (`limit`), has no reader
for its last bytes. Spark's own daemon prints a traceback then; here the worker just ends.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Callable
from typing import Final

TASKS_PER_COLLECTION: Final = 50
_PR_SET_PDEATHSIG: Final = 1  # of linux/prctl.h


class SparingCollector:
    """Stands in for the module `gc` in Spark's daemon, which calls `collect` after each task."""

    def __init__(self, every: int = TASKS_PER_COLLECTION) -> None:
        self._every = every
        self._tasks = 0

    def collect(self) -> int:
        """Count one more task of this worker; collect only if it is its turn."""
        self._tasks += 1
        if self._tasks == 1:
            gc.collect()
            gc.freeze()
            return 0
        return gc.collect() if self._tasks % self._every == 0 else 0


class Leash:
    """Ends the processes that this one forks when it ends; those that they fork are left alone."""

    def __init__(self) -> None:
        self._parent = os.getpid()
        self._is_held = False
        os.register_at_fork(after_in_child=self._hold)

    def _hold(self) -> None:
        if self._is_held:
            return
        self._is_held = True
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != self._parent:
            os._exit(1)  # it ended in the moment before


def end_without_reader(worker: Callable[..., int]) -> Callable[..., int]:
    """Return a worker that ends with an exit code if Spark has closed the connection."""

    def run(*arguments: object) -> int:
        try:
            return worker(*arguments)
        except (BrokenPipeError, ConnectionResetError):
            return 1

    return run


def main() -> None:
    """Run Spark's daemon; each worker it forks has its own count."""
    from pyspark import daemon  # noqa: PLC0415 (only a worker host pays for it)

    vars(daemon)["gc"] = SparingCollector()
    vars(daemon)["worker"] = end_without_reader(daemon.worker)
    Leash()
    daemon.manager()


if __name__ == "__main__":
    main()
