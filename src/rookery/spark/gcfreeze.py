"""Excludes loaded modules from garbage collection in workers of Spark's own daemon.

That daemon collects all garbage after each task. This takes 20 to 50 ms once pyarrow, pandas and
Rookery are loaded, which is several times the cost of a small task. Frozen objects cost nothing.
The daemon of `rookery.spark.tuning.daemon` does this for every task. This module is for workers of
Spark's own daemon, and for planning processes, which always use that daemon.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

_DAEMON: Final = "pyspark.daemon"

_modules = 0
"""The number of modules loaded when this process last froze its objects."""


def settle() -> None:
    """Freeze all objects if modules were loaded since the last call; does nothing elsewhere."""
    global _modules  # noqa: PLW0603 (one per process, like the frozen objects)
    program = getattr(sys.modules["__main__"], "__spec__", None)
    if program is None or program.name != _DAEMON or len(sys.modules) == _modules:
        return
    gc.collect()
    gc.freeze()
    _modules = len(sys.modules)


def settle_after(rows: Iterable[T]) -> Iterator[T]:
    """Yield a task's rows and then call `settle`: all modules are loaded by then."""
    yield from rows
    settle()
