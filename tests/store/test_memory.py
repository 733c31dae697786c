"""The store in memory: the contract of all stores."""

from __future__ import annotations

import pytest

from rookery.store.open import open_store
from tests.contracts.store import StoreContract


class TestMemory(StoreContract):
    @pytest.fixture
    def url(self, request: pytest.FixtureRequest) -> str:
        return f"memory:{request.node.nodeid}"


async def test_unnamed_memory_store_is_private() -> None:
    await open_store("memory:").create("key", [b"x"])
    assert await open_store("memory:").list() == []
