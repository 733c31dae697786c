"""One Spark session for all tests of a pytest process: it takes 11 seconds to start.

It is shared, so a test uses names of its own for views and queries and stops what it starts.
Under pytest-xdist each worker has its own, with its own warehouse.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from rookery.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A short run is over before the optimizing compiler has paid for itself.
_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark on two cores of this host; without Java or pyspark a test fails and says so."""
    folder = tmp_path_factory.mktemp("spark")
    # Derby and the launcher leave files in the working folder, unless told where.
    options = f"{_QUICK_START} -Dderby.system.home={folder}"
    made = session(
        "tests",
        "local[2]",
        settings={
            "spark.driver.extraJavaOptions": options,
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
            "spark.log.level": "ERROR",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        },
    )
    yield made
    made.stop()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Name a checkpoint folder that does not exist yet, for one query of one test."""
    return tmp_path / "checkpoint"
