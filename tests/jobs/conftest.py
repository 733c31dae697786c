"""A cluster without brokers for each test."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rookery.direct.place import ClusterAddress
from tests.direct.sinking import make_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def place(tmp_path: Path) -> ClusterAddress:
    """Make a cluster whose store and log are in a folder."""
    return asyncio.run(make_cluster(tmp_path / "cluster"))


@pytest.fixture(scope="session")
def spark(shared_spark: SparkSession, own_spark: None) -> SparkSession:
    """Run with the peers: what these tests add to Spark is tested without it, too."""
    return shared_spark
