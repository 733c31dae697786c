"""Logs for pipelines to read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.logs import Log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """A log in a folder; its broker runs only while records are written."""
    return Log(tmp_path)


@pytest.fixture(scope="session")
def spark(shared_spark: SparkSession, own_spark: None) -> SparkSession:
    """The shared Spark; these tests run with the peers, because faster ones cover the same code."""
    return shared_spark
