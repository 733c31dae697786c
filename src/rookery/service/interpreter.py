"""Settings of the Python interpreter and the allocator for processes that serve many requests."""

from __future__ import annotations

import gc
import sys
from typing import Final

from rookery.records import heap

# Requests make many objects that live shortly; scanning all that live for long, which the default
# of 700 does often, costs more than half of what a large request costs otherwise. A scan of the
# young ones, and soon after of their survivors, stops the process for a millisecond or two. A full
# scan takes as long as the caches are large and is hardly ever worth it: requests leave no cycles.
_GC_THRESHOLDS: Final = (10_000, 2, 1000)
# A thread that has bytes to sync, or has synced them, waits no longer than this for the
# interpreter. Python's own 5 ms are more than everything else that a small produce takes.
_SWITCH_SECONDS: Final = 0.0005


def tune_interpreter() -> None:
    """Tune this process for serving; call it once, when everything that lives long is made."""
    heap.keep()
    # The collector need not scan again what lives as long as the process.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    sys.setswitchinterval(_SWITCH_SECONDS)
