"""Outages are logged when they begin, change and end."""

from __future__ import annotations

import logging

import pytest

from rookery.errors import Conflict, Unavailable
from rookery.outage import Outage


def test_outage_logs_its_start_new_causes_and_its_end_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    outage = Outage(logging.getLogger("test"), "the disk")

    outage.end()
    for number in range(100):
        outage.fail(Unavailable(f"file {number}: no space"))
    outage.fail(Conflict("taken"))
    outage.end()
    outage.end()
    outage.fail(Conflict("taken"))

    assert [record.getMessage() for record in caplog.records] == [
        "the disk fails: file 0: no space",
        "the disk fails: taken",
        "the disk works again after 101 failures",
        "the disk fails: taken",
    ]
    assert outage.failures == 1
