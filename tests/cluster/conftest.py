"""A SQLite log that a test can open several times."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from rookery.cluster.backends.sqlite import SqliteLog
from tests.cluster.processes import Opener


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cluster.sqlite"


@pytest_asyncio.fixture
async def opened(path: Path) -> AsyncIterator[Opener]:
    logs: list[SqliteLog] = []

    def opener(patience: float = 30.0) -> SqliteLog:
        logs.append(SqliteLog(path, "os", patience))
        return logs[-1]

    yield opener
    for log in logs:
        await log.close()
