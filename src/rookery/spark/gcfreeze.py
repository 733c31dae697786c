"""Sets aside what a worker of Spark's own daemon has loaded, so that it is not looked at again.

That daemon collects all garbage after each task, which takes 20 to 50 ms once pyarrow, pandas and
we are loaded: several times what a small task costs. What is set aside costs nothing. The daemon of
`rookery.spark.tuning.daemon` does so for every task; this is for workers of Spark's own daemon, and
for the processes that plan, which always have that one.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

_DAEMON: Final = "pyspark.daemon"

_modules = 0
"""How many were loaded when this process settled last."""


def settle() -> None:
    """Set aside what there is, if more was loaded since the last time; elsewhere do nothing."""
    global _modules  # noqa: PLW0603 (of the process, as what is set aside is)
    program = getattr(sys.modules["__main__"], "__spec__", None)
    if program is None or program.name != _DAEMON or len(sys.modules) == _modules:
        return
    gc.collect()
    gc.freeze()
    _modules = len(sys.modules)


def settled(rows: Iterable[T]) -> Iterator[T]:
    """Yield what a task yields, and settle behind the last: by then everything is loaded."""
    yield from rows
    settle()
