"""A reader that is killed and restarted returns the rows of an uninterrupted one."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.testing.kafkalogs import Logs
from tests.consumer.hard.skew import Shape, fill
from tests.consumer.killing import copying, ordeal


@pytest.mark.parametrize("group", [None, "killed"])
def test_consumer_killed_at_random_points_resumes(
    logs: Logs, tmp_path: Path, group: str | None
) -> None:
    topic = logs.create("killed", 8)
    fill(logs, topic, Shape(rows=20_000, partitions=8))

    twice = ordeal(logs.bootstrap, topic, tmp_path, kills=5, seed=3, group=group)

    assert twice == 0 or group is not None


def test_consumer_killed_in_transactions_is_exactly_once(logs: Logs, tmp_path: Path) -> None:
    topic = logs.create("killed", 8)
    fill(logs, topic, Shape(rows=10_000, partitions=8))

    assert copying(logs, topic, tmp_path, kills=4, seed=3) == 0
