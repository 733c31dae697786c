"""What tests of streams share; Spark itself is in the conftest of all tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Name a checkpoint folder that does not exist yet, for one query of one test."""
    return tmp_path / "checkpoint"
