"""A process that froze within C code shows the stacks of its threads, and ends.

pytest-timeout runs Python code in the main thread. It never comes to that if the main thread waits
within C code, or if any thread does without releasing the interpreter's lock. Several functions of
librdkafka's client do that: `subscribe`, `assign`, `consumer_group_metadata`, `begin_transaction`.
The watchdog of faulthandler needs neither the main thread nor the lock. pytest-xdist then reports
the test whose worker has ended.
"""

from __future__ import annotations

import faulthandler
import os
import sys
from collections.abc import Generator
from typing import Final

import pytest

GRACE_SECONDS: Final = 60.0
"""How long after its own limit a phase of a test counts as frozen."""


class FrozenWatch:
    """Watches each phase of each test: pytest cancels the watchdog of faulthandler at a failure."""

    def __init__(self, grace_seconds: float = GRACE_SECONDS) -> None:
        # While a test runs, the output of this process is captured.
        self._errors = os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2)
        self._grace_seconds = grace_seconds

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Watch the fixtures."""
        self._watch(item)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Watch the call."""
        self._watch(item)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Watch the end of the fixtures."""
        self._watch(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """End the watch with the test."""
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _watch(self, item: pytest.Item) -> None:
        if seconds := limit_seconds(item):
            faulthandler.dump_traceback_later(
                seconds + self._grace_seconds, exit=True, file=self._errors
            )


def limit_seconds(item: pytest.Item) -> float:
    """Return after how many seconds pytest-timeout ends a test; 0 if it has no limit."""
    mark = item.get_closest_marker("timeout")
    if mark is not None:
        return float(mark.args[0] if mark.args else mark.kwargs["timeout"])
    return float(item.config.getini("timeout") or 0)
