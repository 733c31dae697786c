"""The store in S3: the contract of all stores, and its limits."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress

import pytest

from rookery.errors import Conflict
from rookery.store.open import open_store
from rookery.store.port import StoredObject
from rookery.testing.s3proxy import Delays, S3Proxy
from rookery.testing.seaweed import SeaweedServer
from tests.contracts.store import StoreContract


class TestS3(StoreContract):
    @pytest.fixture
    async def url(self, seaweed: SeaweedServer) -> str:
        # The bucket must be there also for tests that store nothing.
        with suppress(Conflict):
            await open_store(seaweed.url("contract")).create("bucket", [b"is made"])
        return seaweed.url(f"contract/{secrets.token_hex(8)}")


async def test_stores_in_one_bucket_are_separate(seaweed: SeaweedServer) -> None:
    first, second = (open_store(seaweed.url(f"apart/{name}")) for name in ("one", "one-more"))
    await first.create("key", [b"1"])
    await second.create("key", [b"2"])
    assert await first.list() == [StoredObject("key", 1)]
    assert await first.read("key") == b"1"
    await first.delete("key")
    assert await second.read("key") == b"2"


async def test_list_spans_several_pages(seaweed: SeaweedServer) -> None:
    store = open_store(seaweed.url(f"pages/{secrets.token_hex(8)}"))
    keys = [f"a/{number:04}" for number in range(1050)]
    await asyncio.gather(*(store.create(key, [b"x"]) for key in keys))
    assert [stored.key for stored in await store.list("a/")] == keys


async def test_object_above_the_put_limit_is_refused(seaweed: SeaweedServer) -> None:
    store = open_store(seaweed.url("large"))
    part = memoryview(bytearray(64 << 20))
    with pytest.raises(ValueError, match="at most"):
        await store.create("key", [part] * 65)


async def test_cancelled_create_releases_its_buffers(seaweed: SeaweedServer) -> None:
    data = bytearray(1 << 20)
    async with S3Proxy(seaweed.port, delays=Delays(put_ms=60_000)) as proxy:
        store = open_store(seaweed.url(f"cancelled/{secrets.token_hex(8)}", proxy.endpoint))

        async def create() -> None:
            await store.create("key", [memoryview(data)])

        task = asyncio.create_task(create())
        await _until(lambda: proxy.requests["PUT"] > 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        await _until(lambda: _is_free(data))


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 (a released buffer has no event)
            await asyncio.sleep(0.001)


def _is_free(data: bytearray) -> bool:
    try:
        data.append(0)
    except BufferError:
        return False
    return True
