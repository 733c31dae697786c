"""Logs for pipelines to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.logs import Log


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Make a log in a folder; its broker runs while records are written, and no longer."""
    return Log(tmp_path)
