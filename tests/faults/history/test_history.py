"""Everybody at work at once while brokers are killed and paused and connections are cut.

What each of them did is written down, and the checker finds no broken promise in it. The long form
is `python -m tests.faults.history.long`.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.history.nemesis import FAULTS
from tests.faults.history.run import Run, Settings
from tests.faults.history.targets import SQLITE, running

SEED = int(os.environ.get("ROOKERY_TEST_SEED", str(random.randrange(1 << 32))))
SECONDS = 30.0
MOST_WAITED_FOR = {
    "faults": len(FAULTS),
    "transactions committed": 50,
    "records read by groups": 1_000,
}
"""The run goes on until there was as much of each."""


@pytest.mark.timeout(280)
def test_guarantees_hold_under_faults(tmp_path: Path) -> None:
    print(f"seed {SEED}")  # noqa: T201 (to run it again)
    settings = Settings(
        seed=SEED, seconds=SECONDS, faults=FAULTS, gap=2.0, at_least=MOST_WAITED_FOR
    )
    with running(SQLITE, tmp_path) as target:
        try:
            result = Run(target, settings, tmp_path / "history.jsonl").go()
        except BaseException:
            print(target.words())  # noqa: T201 (beside the failure)
            raise
    print(result)  # noqa: T201
    assert result.findings == []
    assert result.counts >= Counter(MOST_WAITED_FOR)
