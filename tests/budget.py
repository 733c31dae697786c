"""A time budget for each test of the first tier, so that `make test` stays quick."""

from __future__ import annotations

from typing import Final

import pytest

from tests.tiers import Group, find_group

SECONDS: Final = 5.0
# SeaweedFS delays conditional writes that race for one key by a second each, and every log in a
# store makes some to probe it.
_BY_GROUP: Final[dict[str, float]] = {Group.OBJECTS: 10.0, Group.SPARK: 20.0}


def find_budget(item: pytest.Item) -> float:
    """Return the seconds that the call of a test may take."""
    return _BY_GROUP.get(find_group(item), SECONDS)


def charge(item: pytest.Item, report: pytest.TestReport) -> None:
    """Fail a test that passed but took longer than its budget."""
    budget = find_budget(item)
    if report.when == "call" and report.passed and report.duration > budget:
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} took {report.duration:.1f} s; a test of this tier has {budget:g} s. "
            "Make it quicker, or let it ask for the fixture of a heavier tier (tests/tiers.py)."
        )
