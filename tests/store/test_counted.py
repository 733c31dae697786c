"""The counts and the cost of requests to a store."""

from __future__ import annotations

import asyncio
import secrets
import sys

import pytest

from rookery.errors import Conflict
from rookery.store import meter
from rookery.store.backends.memory import MemoryStore
from rookery.store.open import open_store
from rookery.store.port import NotFound, Store
from rookery.store.wrappers import CountedStore
from rookery.testing.s3proxy import Rule, S3Fault, S3Proxy
from rookery.testing.seaweed import SeaweedServer
from tests.contracts.store import StoreContract


class TestCounted(StoreContract):
    @pytest.fixture
    def url(self, request: pytest.FixtureRequest) -> str:
        return f"memory:counted {request.node.nodeid}"

    @pytest.fixture
    def store(self, url: str) -> Store:
        return CountedStore(open_store(url))


def counts() -> dict[str, float]:
    kinds = ("create", "read", "size", "list", "delete", "replace")
    return {kind: meter.REQUESTS.labels(kind).value for kind in kinds}


async def test_requests_are_counted_by_kind() -> None:
    before, written, read = counts(), meter.WRITTEN_BYTES.value, meter.READ_BYTES.value
    observed = meter.REQUEST_SECONDS.labels("read").count
    store = CountedStore(MemoryStore({}))
    await store.create("key", [b"12", bytearray(b"345")])
    await store.read("key", 1, 2)
    _, version = await store.read_version("key") or (b"", "")
    await store.replace("key", b"1234", version)
    await store.size("key")
    await store.list()
    await store.delete("key")
    after = counts()
    assert {kind: after[kind] - before[kind] for kind in after} == {
        **dict.fromkeys(("create", "size", "list", "delete", "replace"), 1),
        "read": 2,
    }
    assert meter.WRITTEN_BYTES.value - written == 9
    assert meter.READ_BYTES.value - read == 7
    assert meter.REQUEST_SECONDS.labels("read").count - observed == 2


async def test_errors_are_counted_and_write_nothing() -> None:
    store = CountedStore(MemoryStore({}))
    await store.create("key", [b"1"])
    written = meter.WRITTEN_BYTES.value
    conflicts = meter.ERRORS.labels("create", "Conflict").value
    missing = meter.ERRORS.labels("read", "NotFound").value
    with pytest.raises(Conflict):
        await store.create("key", [b"2"])
    with pytest.raises(NotFound):
        await store.read("other")
    assert meter.ERRORS.labels("create", "Conflict").value == conflicts + 1
    assert meter.ERRORS.labels("read", "NotFound").value == missing + 1
    assert meter.WRITTEN_BYTES.value == written


async def test_long_list_counts_as_several_requests() -> None:
    store = CountedStore(MemoryStore({f"{number:04}": b"" for number in range(2001)}))
    before = counts()["list"]
    await store.list()
    assert counts()["list"] == before + 3


async def test_cost_follows_from_requests_and_retries(seaweed: SeaweedServer) -> None:
    async with S3Proxy(seaweed.port) as proxy:
        url = seaweed.url(f"counted/{secrets.token_hex(8)}", proxy.endpoint)
        proxy.add(Rule(S3Fault.ERROR, "PUT", times=2))
        # The counts are per process, and other tests may have left work in ours.
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.store.dollars", url
        )
        assert await child.wait() == 0
        assert proxy.requests["PUT"] == 3
