"""The log in an object store: the contract of all cluster logs, and faults of the store."""

from __future__ import annotations

import asyncio
import random
import secrets
import signal
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from rookery.cluster.objects.ahead import EntryBuffer
from rookery.cluster.objects.entries import last_present
from rookery.cluster.open import open_log
from rookery.cluster.port import LogEntry
from rookery.errors import ConfigError
from rookery.store.open import open_store
from rookery.testing.s3proxy import Rule, S3Fault, S3Proxy
from rookery.testing.seaweed import SeaweedServer
from tests.cluster.processes import child, line, rest
from tests.contracts.cluster_log import ClusterLogContract, append_many, read_all


class TestMemoryStore(ClusterLogContract):
    @pytest.fixture
    def url(self, request: pytest.FixtureRequest) -> str:
        return f"store:memory:{request.node.nodeid}?poll=1ms"


class TestFileStore(ClusterLogContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"store:file://{tmp_path}/objects?poll=1ms"


class TestS3Store(ClusterLogContract):
    @pytest.fixture
    def url(self, seaweed: SeaweedServer) -> str:
        return f"store:{seaweed.url(f'cluster/{secrets.token_hex(8)}', poll='5ms')}"

    @pytest_asyncio.fixture(autouse=True)
    async def bucket(self, seaweed: SeaweedServer) -> None:
        store = open_store(seaweed.url("cluster"))
        await store.create(secrets.token_hex(8), [b"a bucket comes with its first object"])


async def test_lost_answers_of_a_real_server_lose_and_duplicate_nothing(
    seaweed: SeaweedServer,
) -> None:
    path = f"cluster/{secrets.token_hex(8)}"
    await open_store(seaweed.url(path)).create("bucket", [b""])
    async with S3Proxy(seaweed.port) as proxy:
        proxy.add(Rule(S3Fault.SWALLOW, method="PUT", path="_rookery/log/", rate=0.2))
        proxy.add(Rule(S3Fault.ERROR, path="_rookery/log/", rate=0.1))
        logs = [open_log(f"store:{seaweed.url(path, proxy.endpoint)}&poll=5ms") for _ in range(2)]
        acked = await asyncio.gather(
            *(append_many(log, f"writer {index}", 8) for index, log in enumerate(logs))
        )
        for log in logs:
            await log.close()
    log = open_log(f"store:{seaweed.url(path)}")
    entries = await read_all(log)
    await log.close()
    assert [number for number, _ in entries] == list(range(1, 17))
    assert dict(entries) == acked[0] | acked[1]


async def test_killed_writers_neither_lose_nor_duplicate_entries(tmp_path: Path) -> None:
    url, chance = f"store:file://{tmp_path}/objects?poll=1ms", random.Random(7)
    expected: dict[int, bytes] = {}
    for round_ in range(3):
        with (
            child("append", url, f"a{round_}", 100_000) as first,
            child("append", url, f"b{round_}", 100_000) as second,
        ):
            for process in (first, second):
                assert await line(process) == "ready"
            for process in (first, second):
                for _ in range(chance.randrange(30)):
                    number, data = (await line(process)).split()
                    expected[int(number)] = data.encode()
                process.send_signal(signal.SIGKILL)
                for said in (await rest(process)).splitlines(keepends=True):
                    if said.endswith("\n"):
                        expected[int(said.split()[0])] = said.split()[1].encode()
        log = open_log(url)
        entries = await read_all(log, max_bytes=1 << 20)
        await log.close()
        assert [e.number for e in entries] == list(range(1, len(entries) + 1))
        assert len({e.data for e in entries}) == len(entries)
        assert expected.items() <= dict(entries).items()
    assert len(expected) > 30


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("store:", "store '': neither a folder nor a URL"),
        ("store:nowhere:x", "no backend called 'nowhere'"),
        ("store:memory:x?poll=", "poll='' is not a time"),
        ("store:memory:x?poll=0ms", "poll='0ms' is not a time"),
        ("store:memory:x?poll=61s", "poll='61s' is not a time"),
        ("store:memory:x?poll=1h", "poll='1h' is not a time"),
        ("store:memory:x?poll=-1ms", "poll='-1ms' is not a time"),
    ],
)
async def test_a_url_that_names_no_log_is_refused(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        open_log(url)


async def test_error_message_contains_no_secret() -> None:
    with pytest.raises(ConfigError) as caught:
        open_log("store:s3://bucket/prefix?secret_access_key=hush&poll=never")
    assert "s3://bucket/prefix" in str(caught.value)
    assert "hush" not in str(caught.value)


@given(start=st.integers(0, 50), length=st.integers(0, 3000))
async def test_last_entry_is_found_with_few_requests(start: int, length: int) -> None:
    asked: list[int] = []

    async def exists(number: int) -> bool:
        asked.append(number)
        return number <= start + length

    assert await last_present(exists, start) == start + length
    assert len(asked) <= 2 * (length + 1).bit_length() + 1


def test_read_ahead_buffer_is_bounded_and_entries_are_taken_once() -> None:
    ahead = EntryBuffer(max_bytes=100)
    for number in range(1, 8):
        ahead.put(number, b"x" * 20)
    assert ahead.take(1, 1000) == []
    assert [number for number, _ in ahead.take(2, 59)] == [3, 4]
    assert ahead.take(2, 1000) == []
    ahead.drop(6)
    assert ahead.take(5, 1000) == []
    assert ahead.take(6, 1) == [LogEntry(7, b"x" * 20)]
    ahead.put(8, b"x" * 1000)
    assert ahead.take(7, 1) == [LogEntry(8, b"x" * 1000)]
