"""Several clusters in one bucket: each sees its own objects alone."""

from __future__ import annotations

import pytest

from rookery.store.namespaced import NamespacedStore
from rookery.store.open import open_store
from rookery.store.port import Store, Stored
from tests.contracts.store import StoreContract


class TestNamespaced(StoreContract):
    @pytest.fixture
    def url(self, request: pytest.FixtureRequest) -> str:
        return f"memory:{request.node.nodeid}"

    @pytest.fixture
    def store(self, url: str) -> Store:
        return NamespacedStore(open_store(url), "one")


async def test_namespaces_do_not_see_each_other(request: pytest.FixtureRequest) -> None:
    inner = open_store(f"memory:{request.node.nodeid}")
    one, two = NamespacedStore(inner, "one"), NamespacedStore(inner, "two")
    await one.create("_rookery/objects/1", [b"one"])
    await two.create("_rookery/objects/1", [b"the other"])
    await two.create("two/t/0/segment-0.kfs", [b"x"])
    assert await one.read("_rookery/objects/1") == b"one"
    assert await one.list("_rookery/") == [Stored("_rookery/objects/1", 3)]
    assert await two.list() == [
        Stored("_rookery/objects/1", 9),
        Stored("two/t/0/segment-0.kfs", 1),
    ]
    await one.delete("_rookery/objects/1")
    assert await two.read("_rookery/objects/1") == b"the other"
    assert [stored.key for stored in await inner.list()] == [
        "_rookery/two/objects/1",
        "two/t/0/segment-0.kfs",
    ]
