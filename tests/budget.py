"""A time budget for each test of the first tier, so that `make test` stays quick.

A busy machine must not fail a test. The time in which a process waited for a processor is
therefore not charged: the pressure of Linux (`/proc/pressure/cpu`), and what the host of a virtual
machine took (`steal` in `/proc/stat`). On a quiet machine both are close to zero.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.tiers import Group, find_group

SECONDS: Final = 5.0
# SeaweedFS delays conditional writes that race for one key by a second each, and every log in a
# store makes some to probe it.
_BY_GROUP: Final[dict[str, float]] = {Group.OBJECTS: 10.0, Group.SPARK: 20.0}
_STEAL: Final = 8
"""The column of `steal` in the first line of `/proc/stat`, after the name."""

WAITED: Final = pytest.StashKey[float]()
"""Seconds that processes waited for a processor while a test was called."""


def waited_seconds(proc: Path = Path("/proc")) -> float:
    """Return for how long processes have waited for a processor since the machine started."""
    try:
        some = (proc / "pressure" / "cpu").read_text("ascii").partition("\n")[0]
        times = (proc / "stat").read_text("ascii").partition("\n")[0].split()
    except OSError:
        return 0.0
    stolen = int(times[_STEAL]) / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)
    return int(some.rpartition("=")[2]) / 1e6 + stolen


def find_budget(item: pytest.Item) -> float:
    """Return the seconds that the call of a test may take."""
    return _BY_GROUP.get(find_group(item), SECONDS)


def charge(item: pytest.Item, report: pytest.TestReport) -> None:
    """Fail a test that passed but took longer than its budget."""
    budget, waited = find_budget(item), item.stash.get(WAITED, 0.0)
    if report.when == "call" and report.passed and report.duration - waited > budget:
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} took {report.duration:.1f} s, {waited:.1f} s of which the machine was "
            f"overloaded; a test of this tier has {budget:g} s. "
            "Make it quicker, or let it ask for the fixture of a heavier tier (tests/tiers.py)."
        )
