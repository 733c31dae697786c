"""A time budget for each test of the first tier, so that `make test` stays quick."""

from __future__ import annotations

from typing import Final

import pytest

from tests.tiers import Group, find_group

SECONDS: Final = 5.0
SPARK_SECONDS: Final = 20.0


def find_budget(item: pytest.Item) -> float:
    """Return the seconds that the call of a test may take."""
    return SPARK_SECONDS if find_group(item) == Group.SPARK else SECONDS


def charge(item: pytest.Item, report: pytest.TestReport) -> None:
    """Fail a test that passed but took longer than its budget."""
    budget = find_budget(item)
    if report.when == "call" and report.passed and report.duration > budget:
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} took {report.duration:.1f} s; a test of this tier has {budget:g} s. "
            "Make it quicker, or let it ask for the fixture of a heavier tier (tests/tiers.py)."
        )
