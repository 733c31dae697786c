"""kill -9 under load: no acknowledged record is lost, doubled or reordered."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from rookery.testing.backends import KINDS, ServerBackend
from rookery.testing.broker import BrokerProcess
from rookery.testing.brokers import BRISK, Hosts
from tests.crash.hosts import BLOWS, wait_until_clean
from tests.crash.killing import blows, ordeal

# `python -m tests.crash.long` does it more often.
KILLS = int(os.environ.get("ROOKERY_TEST_KILLS", "8"))
HOST_KILLS = int(os.environ.get("ROOKERY_TEST_KILLS", "6"))
SEED = int(os.environ.get("ROOKERY_TEST_SEED", str(random.randrange(1 << 32))))


@pytest.mark.timeout(300 + 10 * KILLS)
@pytest.mark.parametrize("workers", [1, 3])
def test_acknowledged_records_survive_kill_9(tmp_path: Path, workers: int) -> None:
    with BrokerProcess(tmp_path / "data", workers=workers) as broker:
        acked = ordeal(broker, blows(workers), KILLS, SEED)

        assert acked >= KILLS


@pytest.mark.timeout(300 + 20 * HOST_KILLS)
@pytest.mark.parametrize("kind", KINDS)
def test_acknowledged_records_in_a_store_survive_kill_9(tmp_path: Path, kind: str) -> None:
    with (
        ServerBackend(kind) as backend,
        Hosts(
            3,
            store=backend.store("ordeal"),
            cluster=backend.cluster("ordeal"),
            folder=tmp_path,
            flags=BRISK,
        ) as hosts,
    ):
        acked = ordeal(hosts, BLOWS, HOST_KILLS, SEED)
        wait_until_clean(hosts)

        assert acked >= HOST_KILLS
