"""A worker daemon for Spark that does not collect garbage after every task.

Spark's own daemon collects all of it after each task, which takes 20 ms once pyarrow and pandas are
loaded: several times what a small task costs. A worker of this daemon sets aside what its first
task left (modules, mostly) so that it is never looked at again, and then collects after every 50th
task. Set `spark.python.daemon.module=rookery.spark.daemon`, as `rookery.spark.session` does.
"""

from __future__ import annotations

import gc
from typing import Final

TASKS_PER_COLLECTION: Final = 50


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


def main() -> None:
    """Run Spark's daemon; each worker it forks has its own count."""
    from pyspark import daemon  # noqa: PLC0415 (only a worker host pays for it)

    vars(daemon)["gc"] = SparingCollector()
    daemon.manager()


if __name__ == "__main__":
    main()
