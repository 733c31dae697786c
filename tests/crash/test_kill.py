"""kill -9 under load: no acknowledged record is lost, doubled or reordered."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from rookery.testing.broker import BrokerProcess
from tests.crash.killing import ordeal

# `python -m tests.crash.long` does it more often.
KILLS = int(os.environ.get("ROOKERY_TEST_KILLS", "8"))
SEED = int(os.environ.get("ROOKERY_TEST_SEED", str(random.randrange(1 << 32))))


@pytest.mark.timeout(30 + 10 * KILLS)
@pytest.mark.parametrize("workers", [1, 3])
def test_acknowledged_records_survive_kill_9(tmp_path: Path, workers: int) -> None:
    with BrokerProcess(tmp_path / "data", workers=workers) as broker:
        acked = ordeal(broker, KILLS, SEED)

        assert acked >= KILLS
