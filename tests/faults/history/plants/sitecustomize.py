"""Bugs for brokers, which a run must find: `long.py --plant sequences`.

Python reads this file by its name at the start of every process whose path has its folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final
from unittest.mock import patch

from rookery.cluster.state import aborts, producers


def plant_sequences() -> None:
    """Take a retry for a new batch: duplicates."""
    patch.object(producers, "judge", lambda *_: producers.NEW).start()


def plant_forgetful() -> None:
    """Acknowledge some batches without keeping them: lost records."""
    judge = producers.judge

    def forgetful(window: bytes | None, epoch: int, first: int, count: int) -> producers.Verdict:
        verdict = judge(window, epoch, first, count)
        is_hit = verdict is producers.NEW and window is not None and first % 37 == 0
        return producers.Verdict(verdict.error, 0) if is_hit else verdict

    patch.object(producers, "judge", forgetful).start()


def plant_aborted() -> None:
    """Report no aborted transactions to readers: aborted reads."""
    patch.object(aborts, "within", lambda *_: iter(())).start()


def plant_repetitions() -> None:
    """Take a batch for a repetition of one in the transaction before: lost records."""
    close = producers.close

    def remembering(window: bytes | None, epoch: int, time_ms: int) -> bytes:
        return window or close(window, epoch, time_ms)

    patch.object(producers, "close", remembering).start()


PLANTS: Final[dict[str, Callable[[], None]]] = {
    "sequences": plant_sequences,
    "forgetful": plant_forgetful,
    "aborted": plant_aborted,
    "repetitions": plant_repetitions,
}

# Brokers only, not the run that starts them.
if any(word.startswith("rookery.") for word in sys.orig_argv):
    PLANTS.get(os.environ.get("ROOKERY_TEST_PLANT", ""), lambda: None)()
