"""Brokers that are killed or paused under load."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def run_with_faults(own_victim: None) -> None:
    """Let all tests of this folder run with the faults."""
