"""Settings of the Python interpreter for processes that serve many requests."""

from __future__ import annotations

import gc
import sys
from typing import Final

# Requests create many short-lived objects. Scanning all long-lived ones, which the default of 700
# does often, costs more than half of the other cost of a large request. A scan of the young ones,
# and soon after of their survivors, stops the process for a millisecond or two. A full scan takes
# time in proportion to the caches and is rarely useful: requests leave no cycles.
_GC_THRESHOLDS: Final = (10_000, 2, 1000)
# The longest time that a thread that syncs bytes waits for the interpreter. Python's default of 5
# ms is longer than the rest of a small produce.
_SWITCH_SECONDS: Final = 0.0005


def tune_interpreter() -> None:
    """Tune this process for serving; call it once, after all long-lived objects are created."""
    # The collector does not need to scan objects that live as long as the process.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    sys.setswitchinterval(_SWITCH_SECONDS)
