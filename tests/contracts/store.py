"""The contract of every store; the tests of a backend subclass it and open its store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine

import pytest

from rookery.errors import Conflict
from rookery.store.open import open_store
from rookery.store.port import MAX_KEY_BYTES, MAX_PART_BYTES, Buffer, NotFound, Store, StoredObject


class StoreContract:
    """The promises of `rookery.store.port`, one test each."""

    @pytest.fixture
    def url(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def store(self, url: str) -> Store:
        return open_store(url)

    async def test_created_object_can_be_read(self, store: Store) -> None:
        data = os.urandom(10_000)
        parts: list[Buffer] = [data[:1], memoryview(data)[1:5000], b"", bytearray(data[5000:])]
        await store.create("a/b/c.kfs", parts)
        assert await store.read("a/b/c.kfs") == data
        assert await store.size("a/b/c.kfs") == 10_000

    async def test_object_can_be_empty(self, store: Store) -> None:
        await store.create("empty", [])
        assert await store.read("empty") == b""
        assert await store.size("empty") == 0

    async def test_object_can_have_many_parts(self, store: Store) -> None:
        await store.create("many", [b"%05d" % index for index in range(5000)])
        assert await store.read("many", 4999 * 5) == b"04999"
        assert await store.size("many") == 25_000

    @pytest.mark.parametrize(
        ("start", "size", "expected"),
        [(0, 3, b"012"), (4, None, b"456789"), (8, 5, b"89"), (10, 1, b""), (10, None, b"")],
    )
    async def test_range_can_be_read(
        self, store: Store, start: int, size: int | None, expected: bytes
    ) -> None:
        await store.create("digits", [b"0123456789"])
        assert await store.read("digits", start, size) == expected
        view = await store.view("digits", start, size)
        assert (len(view), bytes(view)) == (len(expected), expected)

    @pytest.mark.parametrize(("start", "size"), [(-1, None), (0, -1), (11, None), (11, 1)])
    async def test_range_outside_of_the_object_is_refused(
        self, store: Store, start: int, size: int | None
    ) -> None:
        await store.create("digits", [b"0123456789"])
        with pytest.raises(ValueError, match="cannot read"):
            await store.read("digits", start, size)
        with pytest.raises(ValueError, match="cannot read"):
            await store.view("digits", start, size)

    async def test_existing_object_is_not_overwritten(self, store: Store) -> None:
        await store.create("key", [b"first"])
        with pytest.raises(Conflict, match="'key' exists"):
            await store.create("key", [b"second"])
        assert await store.read("key") == b"first"

    async def test_creating_an_object_with_equal_bytes_conflicts(self, store: Store) -> None:
        data = b"same"
        await store.create("key", [data])
        with pytest.raises(Conflict):
            await store.create("key", [data])

    async def test_one_of_several_concurrent_creators_succeeds(self, url: str) -> None:
        stores = [open_store(url) for _ in range(8)]
        results = await asyncio.gather(
            *(store.create("a/key", [b"%d" % i] * 1000) for i, store in enumerate(stores)),
            return_exceptions=True,
        )
        winners = [index for index, result in enumerate(results) if result is None]
        assert len(winners) == 1
        assert sum(isinstance(result, Conflict) for result in results) == 7
        assert await stores[0].read("a/key") == b"%d" % winners[0] * 1000

    async def test_missing_object_is_not_found(self, store: Store) -> None:
        await store.create("a/b", [b"x"])
        for key in ("b", "a", "a/c", "x/y/z"):
            assert await store.size(key) is None
            with pytest.raises(NotFound) as caught:
                await store.read(key)
            assert caught.value.key == key

    async def test_listing_is_by_prefix_and_in_order(self, store: Store) -> None:
        assert await store.list() == []
        for key in ("t/1/b", "t/1/a", "t/10/a", "t-1/a", "u"):
            await store.create(key, [key.encode()])
        assert await store.list() == [
            StoredObject("t-1/a", 5),
            StoredObject("t/1/a", 5),
            StoredObject("t/1/b", 5),
            StoredObject("t/10/a", 6),
            StoredObject("u", 1),
        ]
        assert [s.key for s in await store.list("t/1")] == ["t/1/a", "t/1/b", "t/10/a"]
        assert [s.key for s in await store.list("t/1/")] == ["t/1/a", "t/1/b"]
        assert [s.key for s in await store.list("t")] == ["t-1/a", "t/1/a", "t/1/b", "t/10/a"]
        assert await store.list("nothing/here") == []
        assert await store.list("u/") == []

    async def test_deleted_object_is_not_found(self, store: Store) -> None:
        await store.create("a/b", [b"x"])
        await store.delete("a/b")
        await store.delete("a/b")
        await store.delete("never/was")
        assert await store.list() == []
        with pytest.raises(NotFound):
            await store.read("a/b")

    async def test_read_during_a_deletion_is_whole_or_not_found(self, store: Store) -> None:
        await store.create("key", [b"x" * 100_000])
        reads = [asyncio.create_task(store.read("key")) for _ in range(5)]
        await store.delete("key")
        for result in await asyncio.gather(*reads, return_exceptions=True):
            assert isinstance(result, NotFound) or result == b"x" * 100_000

    async def test_handles_of_one_url_share_objects(self, url: str) -> None:
        first, second = open_store(url), open_store(url)
        await first.create("key", [b"x"])
        await first.close()
        assert await second.read("key") == b"x"

    @pytest.mark.parametrize("topic", [".a", "..a", ".new", "...", "-", "_", "A.b_c-1", "x" * 249])
    async def test_every_topic_name_can_be_part_of_a_key(self, store: Store, topic: str) -> None:
        key = f"cluster=1/{topic}/0/segment-00000000000000000000.kfs"
        await store.create(key, [b"x"])
        assert await store.list(f"cluster=1/{topic}/") == [StoredObject(key, 1)]
        assert await store.list("cluster=1/") == [StoredObject(key, 1)]
        assert await store.read(key) == b"x"
        await store.delete(key)
        assert await store.list() == []

    async def test_a_version_can_be_replaced(self, store: Store) -> None:
        assert await store.read_version("floor") is None
        await store.create("floor", [b"1"])
        current = await store.read_version("floor")
        assert current is not None
        data, version = current
        assert data == b"1"
        second = await store.replace("floor", b"22", version)
        assert second != version
        assert await store.read_version("floor") == (b"22", second)
        await store.replace("floor", b"333", second)
        assert await store.read("floor") == b"333"
        assert await store.list() == [StoredObject("floor", 3)]

    async def test_an_older_version_is_not_replaced(self, store: Store) -> None:
        await store.create("floor", [b"1"])
        _, first = await store.read_version("floor") or (b"", "")
        await store.replace("floor", b"2", first)
        with pytest.raises(Conflict, match="'floor'"):
            await store.replace("floor", b"3", first)
        assert await store.read("floor") == b"2"

    async def test_deleted_object_is_not_replaced(self, store: Store) -> None:
        await store.create("floor", [b"1"])
        _, first = await store.read_version("floor") or (b"", "")
        await store.delete("floor")
        with pytest.raises(Conflict, match="'floor'"):
            await store.replace("floor", b"2", first)
        assert await store.list() == []

    async def test_one_of_several_concurrent_replacements_succeeds(self, url: str) -> None:
        stores = [open_store(url) for _ in range(8)]
        await stores[0].create("floor", [b"start"])
        _, version = await stores[0].read_version("floor") or (b"", "")
        results = await asyncio.gather(
            *(store.replace("floor", b"%d" % i, version) for i, store in enumerate(stores)),
            return_exceptions=True,
        )
        winners = [index for index, result in enumerate(results) if isinstance(result, str)]
        assert len(winners) == 1
        assert sum(isinstance(result, Conflict) for result in results) == 7
        assert await stores[0].read("floor") == b"%d" % winners[0]

    async def test_counter_by_replacement_loses_no_update(self, url: str) -> None:
        async def count(store: Store) -> None:
            for _ in range(5):
                while True:
                    data, version = await store.read_version("count") or (b"", "")
                    try:
                        await store.replace("count", b"%d" % (int(data) + 1), version)
                    except Conflict:
                        continue
                    break

        await open_store(url).create("count", [b"0"])
        await asyncio.gather(*(count(open_store(url)) for _ in range(4)))
        assert await open_store(url).read("count") == b"20"

    @pytest.mark.parametrize(
        "key",
        [
            "",
            "/a",
            "a/",
            "a//b",
            "..",
            "a/../b",
            "./a",
            "a/..",
            "~new/x",
            "a\0b",
            "a\\b",
            "a b",
            "é",
            "a\n",
            "x" * (MAX_PART_BYTES + 1),
            "x/" * (MAX_KEY_BYTES // 2) + "x",
        ],
    )
    async def test_key_outside_of_the_store_is_refused(self, store: Store, key: str) -> None:
        with pytest.raises(ValueError, match="object key"):
            await store.create(key, [b"x"])
        calls: list[Coroutine[object, object, object]] = [
            store.read(key),
            store.size(key),
            store.read_version(key),
            store.replace(key, b"x", "1"),
            store.delete(key),
        ]
        for call in calls:
            with pytest.raises(ValueError, match="object key"):
                await call
        assert await store.list() == []
