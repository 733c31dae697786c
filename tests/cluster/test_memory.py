"""The log in memory: the contract of all cluster logs."""

from __future__ import annotations

import pytest

from rookery.cluster.open import open_log
from tests.contracts.cluster_log import ClusterLogContract


class TestMemory(ClusterLogContract):
    @pytest.fixture
    def url(self, request: pytest.FixtureRequest) -> str:
        return f"memory:{request.node.nodeid}"


async def test_unnamed_memory_log_is_private() -> None:
    first, second = open_log("memory:"), open_log("memory:")
    await first.append(b"x")
    assert await second.head() == 0
