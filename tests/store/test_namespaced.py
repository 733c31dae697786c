"""Several clusters in one bucket: each sees its own objects alone."""

from __future__ import annotations

import pytest

from rookery.errors import Conflict
from rookery.store.open import open_store
from rookery.store.port import NotFound, Store, StoredObject
from rookery.store.wrappers import NamespacedStore, full_key
from tests.contracts.store import StoreContract


class TestNamespaced(StoreContract):
    @pytest.fixture
    def url(self, request: pytest.FixtureRequest) -> str:
        return f"memory:{request.node.nodeid}"

    @pytest.fixture
    def store(self, url: str) -> Store:
        return NamespacedStore(open_store(url), "one")


async def test_namespaces_are_isolated(request: pytest.FixtureRequest) -> None:
    inner = open_store(f"memory:{request.node.nodeid}")
    first, second = NamespacedStore(inner, "one"), NamespacedStore(inner, "two")
    await first.create("_rookery/objects/1", [b"one"])
    await second.create("_rookery/objects/1", [b"the other"])
    await second.create("two/t/0/segment-0.kfs", [b"x"])
    assert await first.read("_rookery/objects/1") == b"one"
    assert await first.list("_rookery/") == [StoredObject("_rookery/objects/1", 3)]
    assert await second.list() == [
        StoredObject("_rookery/objects/1", 9),
        StoredObject("two/t/0/segment-0.kfs", 1),
    ]
    await first.delete("_rookery/objects/1")
    assert await second.read("_rookery/objects/1") == b"the other"
    assert [stored.key for stored in await inner.list()] == [
        "_rookery/two/objects/1",
        "two/t/0/segment-0.kfs",
    ]


async def test_errors_name_an_object_as_the_bucket_does(request: pytest.FixtureRequest) -> None:
    store = NamespacedStore(open_store(f"memory:{request.node.nodeid}"), "one")
    key, full = "_rookery/objects/1", "'_rookery/one/objects/1'"
    with pytest.raises(NotFound, match=full) as caught:
        await store.read(key)
    assert caught.value.key == key, "the caller knows only the short form"
    await store.create(key, [b"one"])
    with pytest.raises(Conflict, match=full):
        await store.create(key, [b"two"])
    with pytest.raises(Conflict, match=full):
        await store.replace(key, b"two", "another version")
    with pytest.raises(ValueError, match=full):
        await store.read(key, 4)


def test_segments_already_have_the_namespace_in_their_keys() -> None:
    assert full_key("one", "one/t/0/segment-0.kfs") == "one/t/0/segment-0.kfs"
    assert full_key("one", "_rookery/objects/1") == "_rookery/one/objects/1"
