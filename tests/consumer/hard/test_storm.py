"""Members of a group that join and leave lose nothing, and repeat nothing that was committed."""

from __future__ import annotations

from rookery.testing.kafkalogs import Logs
from tests.consumer.storm import SEATS, storm


def test_many_rebalances_lose_and_duplicate_nothing(logs: Logs) -> None:
    outcome = storm(logs, total=100_000, seconds=10, every=0.5, seed=4, least_stays=13)

    # There was a storm: members came and went, and partitions with them.
    assert outcome.lives > SEATS
    assert outcome.stays > 12
    assert outcome.rows > 99_000


def test_many_rebalances_of_a_classic_group_lose_and_duplicate_nothing(logs: Logs) -> None:
    outcome = storm(
        logs, total=60_000, seconds=6, every=0.5, seed=5, protocol="classic", least_stays=13
    )

    assert outcome.lives > SEATS
    assert outcome.stays > 12
