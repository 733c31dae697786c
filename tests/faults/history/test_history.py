"""All workers at once while brokers are killed and paused and connections are cut.

What each of them did is written down, and the checker finds no broken promise in it. The long form
is `python -m tests.faults.history.long`.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.history.nemesis import FAULTS, RESTART, SLEEPER
from tests.faults.history.run import Run, Settings
from tests.faults.history.targets import PROXIED, SQLITE, running

SEED = int(os.environ.get("ROOKERY_TEST_SEED", str(random.randrange(1 << 32))))
SECONDS = 30.0
MOST_WAITED_FOR = {
    "faults": len(FAULTS),
    "transactions committed": 50,
    "records read by groups": 1_000,
}
"""The run continues until there was as much of each."""


# Through a proxy, brokers also restart in order and clients sleep, and every kind of fault strikes
# twice: before the proxy or at it, and after it.
PROXY_FAULTS = (*FAULTS, RESTART, SLEEPER)
PROXY_WAITED_FOR = {**MOST_WAITED_FOR, "faults": 2 * len(PROXY_FAULTS)}


@pytest.mark.timeout(900)
def test_guarantees_hold_under_faults(tmp_path: Path) -> None:
    settings = Settings(
        seed=SEED, seconds=SECONDS, faults=FAULTS, gap=2.0, at_least=MOST_WAITED_FOR
    )
    hold_under_faults(SQLITE, settings, tmp_path)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("target", PROXIED)
def test_guarantees_hold_through_a_proxy(target: str, tmp_path: Path, own_victim: None) -> None:
    settings = Settings(
        seed=SEED,
        seconds=SECONDS,
        faults=PROXY_FAULTS,
        gap=1.0,
        readers=("classic", "consumer"),
        copiers=("classic",),
        at_least=PROXY_WAITED_FOR,
    )
    hold_under_faults(target, settings, tmp_path)


def hold_under_faults(kind: str, settings: Settings, folder: Path) -> None:
    print(f"seed {settings.seed}")  # noqa: T201 (to run it again)
    with running(kind, folder) as target:
        try:
            result = Run(target, settings, folder / "history.jsonl").go()
        except BaseException:
            print(target.words())  # noqa: T201 (shown with the failure)
            raise
    print(result)  # noqa: T201
    assert result.findings == []
    assert result.counts >= Counter(settings.at_least)
