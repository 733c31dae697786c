"""Requests to the store that fail, get lost or arrive late, with the log in that store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence

import pytest
import pytest_asyncio

from rookery.cluster.backends.store import StoreLog
from rookery.cluster.objects.layout import PREFIX, Item, entry_key, write_item
from rookery.cluster.port import MAX_ENTRY_BYTES, LogEntry
from rookery.errors import ConfigError, Conflict, Corrupt, Unavailable
from rookery.store.backends.memory import MemoryStore
from rookery.store.port import Buffer
from tests.cluster.drills import DrillStore, Fault
from tests.contracts.cluster_log import append_many, read_all

Objects = dict[str, bytes]


class Process:
    """A log, and the store below it as that process sees it."""

    def __init__(self, objects: Objects, patience: float = 30.0) -> None:
        self.store = DrillStore(MemoryStore(objects))
        self.log = StoreLog(self.store, "memory:drill", 1, patience=patience)


@pytest.fixture
def objects() -> Objects:
    return {}


@pytest_asyncio.fixture
async def process(objects: Objects) -> AsyncIterator[Process]:
    opened = Process(objects)
    yield opened
    await opened.log.close()


@pytest_asyncio.fixture
async def other(objects: Objects) -> AsyncIterator[Process]:
    opened = Process(objects)
    yield opened
    await opened.log.close()


# Lost answers.


@pytest.mark.parametrize(
    "faults",
    [
        [Fault.LOST_ANSWER],
        [Fault.NOT_SENT],
        [Fault.NOT_SENT, Fault.LOST_ANSWER],
        [Fault.LATE, Fault.NOT_SENT],
        [Fault.LATE, Fault.LOST_ANSWER],
    ],
)
async def test_append_with_a_lost_answer_is_stored_once(
    process: Process, faults: list[Fault]
) -> None:
    await process.log.append(b"before")
    process.store.order("create", *faults)

    assert await process.log.append(b"mine") == 2
    await process.store.deliver()

    assert await process.log.append(b"after") == 3
    assert await read_all(process.log) == [
        LogEntry(1, b"before"),
        LogEntry(2, b"mine"),
        LogEntry(3, b"after"),
    ]


@pytest.mark.parametrize("fault", [Fault.NOT_SENT, Fault.LATE])
async def test_append_that_did_not_arrive_follows_those_that_did(
    process: Process, other: Process, fault: Fault
) -> None:
    await process.log.append(b"before")
    await other.log.head()
    process.store.order("create", fault)
    appending = asyncio.create_task(process.log.append(b"mine"))
    await process.store.asked("create", 2)

    assert await other.log.append(b"theirs") == 2
    assert await appending == 3
    await process.store.deliver()

    assert [e.data for e in await read_all(other.log)] == [b"before", b"theirs", b"mine"]


async def test_conflict_with_its_own_entry_is_a_success(process: Process) -> None:
    # As when the store's own client has sent the request twice.
    class Doubling(MemoryStore):
        async def create(self, key: str, parts: Sequence[Buffer]) -> None:
            await super().create(key, parts)
            if key == entry_key(2):
                raise Conflict("exists already")

    objects: Objects = {}
    log = StoreLog(Doubling(objects), "memory:doubling", 1)
    assert [await log.append(data) for data in (b"a", b"b", b"c")] == [1, 2, 3]
    assert [e.data for e in await read_all(log)] == [b"a", b"b", b"c"]


async def test_failed_reads_do_not_fail_an_append(process: Process, other: Process) -> None:
    await process.log.append(b"a")
    await other.log.append(b"b")
    process.store.order("read", Fault.NOT_SENT, Fault.LOST_ANSWER)

    assert await process.log.append(b"c") == 3


async def test_unreachable_store_is_reported_in_time(objects: Objects) -> None:
    process = Process(objects, patience=0.05)
    await process.log.append(b"a")
    process.store.fault = lambda kind, key: Fault.NOT_SENT

    with pytest.raises(Unavailable, match="not known whether"):
        await process.log.append(b"b")
    with pytest.raises(Unavailable, match="ordered"):
        await process.log.head()

    process.store.order("none")
    assert await process.log.append(b"c") == 2


async def test_waiters_survive_a_temporary_failure_of_the_store(
    process: Process, other: Process
) -> None:
    process.store.order("read", *[Fault.NOT_SENT] * 5)
    waiting = asyncio.create_task(process.log.wait(0))
    await process.store.asked("read", 5)
    await other.log.append(b"x")
    assert await waiting == 1


@pytest.mark.parametrize("seed", range(6))
async def test_lost_answers_neither_lose_nor_duplicate_entries(objects: Objects, seed: int) -> None:
    chance = random.Random(seed)
    processes = [Process(objects) for _ in range(3)]

    def fault(kind: str, key: str) -> Fault:
        rate = 0.3 if kind == "create" else 0.05
        return chance.choice(list(Fault)) if chance.random() < rate else Fault.NONE

    async def write(name: int, process: Process) -> dict[int, bytes]:
        process.store.fault = fault
        return await append_many(process.log, str(name), 12)

    async def deliver() -> None:
        while True:
            await asyncio.sleep(0.001)
            for process in processes:
                await process.store.deliver()

    delivering = asyncio.create_task(deliver())
    acked = await asyncio.gather(*(write(*named) for named in enumerate(processes)))
    delivering.cancel()
    for process in processes:
        await process.store.deliver()
    expected = {number: data for part in acked for number, data in part.items()}
    entries = await read_all(Process(objects).log)
    assert [number for number, _ in entries] == list(range(1, 37))
    assert dict(entries) == expected


# What a store may not do.


async def test_a_store_that_ignores_preconditions_is_refused() -> None:
    class Careless(MemoryStore):
        async def create(self, key: str, parts: Sequence[Buffer]) -> None:
            self._objects[key] = b"".join(parts)

    objects: Objects = {}
    log = StoreLog(Careless(objects), "s3://careless", 1)
    for _ in range(2):
        with pytest.raises(ConfigError, match="s3://careless: it creates an object that exists"):
            await log.append(b"x")
    assert not [key for key in objects if key.startswith(PREFIX)]


@pytest.mark.parametrize("call", ["read", "head", "wait", "append"])
async def test_flipped_byte_is_never_served(objects: Objects, process: Process, call: str) -> None:
    await process.log.append(b"some data")
    whole = objects[entry_key(1)]
    for index in range(len(whole)):
        objects[entry_key(1)] = whole[:index] + bytes([whole[index] ^ 0x10]) + whole[index + 1 :]
        log = Process(objects).log
        calls = {"read": log.read(0), "head": log.head(), "wait": log.wait(0)}
        asked = calls.pop(call, None) or log.append(b"x")
        for unused in calls.values():
            unused.close()
        with pytest.raises(Corrupt, match=entry_key(1)):
            await asked
    objects[entry_key(1)] = whole
    assert await Process(objects).log.read(0) == [LogEntry(1, b"some data")]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "cut off after 0 bytes"),
        (b"RKE1" + bytes(20), "cut off after 24 bytes"),
        (b"RKE9" + bytes(50), "another version"),
        (b"".join(write_item(2, Item(bytes(16), b"x"))), "holds entry 2"),
        (b"".join(write_item(1, Item(bytes(16), bytes(MAX_ENTRY_BYTES + 1)))), "larger than any"),
    ],
)
async def test_foreign_object_is_not_an_entry(
    objects: Objects, process: Process, data: bytes, text: str
) -> None:
    objects[entry_key(1)] = data
    with pytest.raises(Corrupt, match=text):
        await process.log.read(0)


# What it costs.


async def test_uncontended_append_takes_one_request(process: Process) -> None:
    await process.log.append(b"first")
    process.store.count.clear()
    await append_many(process.log, "a", 50)
    assert process.store.count == {"create": 50}


async def test_lost_race_for_a_number_takes_two_more_requests(
    process: Process, other: Process
) -> None:
    await process.log.append(b"first")
    await other.log.append(b"second")
    process.store.count.clear()
    assert await process.log.append(b"third") == 3
    assert process.store.count == {"create": 2, "read": 1}


async def test_unchanged_head_takes_one_request(process: Process) -> None:
    await append_many(process.log, "a", 5)
    process.store.count.clear()
    assert await process.log.head() == 5
    assert process.store.count == {"read": 1}


async def test_following_takes_one_request_per_entry_and_one_at_the_end(
    process: Process, other: Process
) -> None:
    await append_many(process.log, "a", 3)
    assert len(await other.log.read(0)) == 3
    await process.log.append(b"x")
    other.store.count.clear()
    assert await other.log.wait(3) == 4
    assert await other.log.read(3) == [LogEntry(4, b"x")]
    assert other.store.count == {"read": 2}


async def test_distant_end_is_found_without_reading_or_listing_entries(
    process: Process, other: Process
) -> None:
    await append_many(process.log, "a", 1000)
    assert await other.log.head() == 1000
    assert set(other.store.count) == {"read", "size", "read_version"}
    assert other.store.count.total() < 30


async def test_idle_log_is_polled_less_often(process: Process, other: Process) -> None:
    await process.log.append(b"x")
    clock = asyncio.get_running_loop()
    began = clock.time()
    waiting = asyncio.create_task(process.log.wait(1))
    await process.store.asked("read", 60)
    # 8 looks at 1 ms, then ever fewer, and in the end one in 10 ms.
    assert clock.time() - began > 0.2
    await other.log.append(b"y")
    assert await waiting == 2
