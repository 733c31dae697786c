"""A cluster without brokers for each test."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rookery.direct.place import ClusterAddress
from tests.direct.sinking import make_cluster


@pytest.fixture
def place(tmp_path: Path) -> ClusterAddress:
    """Make a cluster whose store and log lie in a folder."""
    return asyncio.run(make_cluster(tmp_path / "cluster"))
