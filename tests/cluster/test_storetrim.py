"""Trimming a log in a store: trimmed numbers are never reused, even if processes pause or die."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from rookery.cluster.backends.store import StoreLog
from rookery.cluster.objects.floor import DELAY_MS
from rookery.cluster.objects.layout import (
    FLOOR_KEY,
    FloorLimits,
    entry_key,
    read_limits,
    write_limits,
)
from rookery.cluster.port import EntriesTrimmed, LogEntry
from rookery.errors import Corrupt, Unavailable
from rookery.store.backends.memory import MemoryStore
from rookery.testing.clock import ManualClock
from tests.cluster.drills import DrillStore, Fault, Killed
from tests.contracts.cluster_log import append_many, read_all

Objects = dict[str, bytes]
HALF_MS = DELAY_MS // 2


class Process:
    """A log, with a clock and a view of the store that are this process's own."""

    def __init__(self, objects: Objects) -> None:
        self.clock = ManualClock()
        self.store = DrillStore(MemoryStore(objects))
        self.log = StoreLog(self.store, "memory:drill", 1, clock=self.clock)


class Cluster:
    """Processes for which time passes together."""

    def __init__(self) -> None:
        self.objects: Objects = {}
        self.processes: list[Process] = []

    def process(self) -> Process:
        self.processes.append(Process(self.objects))
        return self.processes[-1]

    def pass_time(self, ms: int) -> None:
        for process in self.processes:
            process.clock.advance(ms)

    def numbers(self) -> list[int]:
        """Return the entries whose objects are there."""
        names = (key.rpartition("/")[2] for key in self.objects if key != FLOOR_KEY)
        return sorted(int(name) for name in names)

    @property
    def limits(self) -> FloorLimits:
        return read_limits(self.objects[FLOOR_KEY])


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


async def trim_and_delete(cluster: Cluster, process: Process, before: int) -> None:
    """Trim, let the delay pass, and have the objects deleted."""
    await process.log.trim(before)
    cluster.pass_time(DELAY_MS)
    await process.log.trim(before)
    assert cluster.limits == (before - 1, before - 1)


# Deleting.


async def test_trimmed_entries_are_deleted_after_the_delay(cluster: Cluster) -> None:
    process = cluster.process()
    await append_many(process.log, "a", 10)

    await process.log.trim(6)
    cluster.pass_time(DELAY_MS - 1)
    await process.log.trim(6)
    assert cluster.numbers() == list(range(1, 11))
    assert cluster.limits == (5, 0)

    cluster.pass_time(1)
    await process.log.trim(8)
    assert cluster.numbers() == list(range(6, 11))
    assert cluster.limits == (7, 5)

    cluster.pass_time(DELAY_MS)
    await process.log.trim(8)
    assert cluster.numbers() == list(range(8, 11))
    assert [e.number for e in await read_all(process.log, 7)] == [8, 9, 10]


async def test_many_trims_within_the_delay_are_all_deleted(cluster: Cluster) -> None:
    process = cluster.process()
    await append_many(process.log, "a", 200)
    for before in range(2, 200):
        await process.log.trim(before)
        cluster.pass_time(1000)
    assert cluster.limits == (198, 0)
    cluster.pass_time(DELAY_MS)
    await process.log.trim(199)
    assert cluster.numbers() == [199, 200]


async def test_trimmer_continues_after_one_that_died(cluster: Cluster) -> None:
    process, other = cluster.process(), cluster.process()
    await append_many(process.log, "a", 10)
    await process.log.trim(6)

    # Its own clock says nothing about when the floor was raised: it waits from when it saw it.
    cluster.pass_time(DELAY_MS)
    await other.log.trim(1)
    assert cluster.limits == (5, 0)
    cluster.pass_time(DELAY_MS)
    await other.log.trim(1)
    assert cluster.limits == (5, 5)
    assert cluster.numbers() == list(range(6, 11))


async def test_time_suspended_counts_towards_the_delay(cluster: Cluster) -> None:
    process = cluster.process()
    await append_many(process.log, "a", 3)
    await process.log.trim(3)
    process.clock.suspend(DELAY_MS)
    await process.log.trim(3)
    assert cluster.numbers() == [3]


async def test_concurrent_trimmers_agree(cluster: Cluster) -> None:
    processes = [cluster.process() for _ in range(3)]
    await append_many(processes[0].log, "a", 40)
    for before in (10, 20, 30):
        await asyncio.gather(*(p.log.trim(before + i) for i, p in enumerate(processes)))
        cluster.pass_time(DELAY_MS)
    await asyncio.gather(*(p.log.trim(1) for p in processes))
    assert cluster.limits == (31, 31)
    assert cluster.numbers() == list(range(32, 41))


@pytest.mark.parametrize("lost", ["create", "replace"])
@pytest.mark.parametrize("fault", [Fault.NOT_SENT, Fault.LOST_ANSWER])
async def test_floor_with_a_lost_answer_is_raised_by_the_next_trim(
    cluster: Cluster, lost: str, fault: Fault
) -> None:
    process = cluster.process()
    await append_many(process.log, "a", 10)
    if lost == "replace":
        await process.log.trim(3)
    process.store.order(lost, fault)
    with pytest.raises(Unavailable):
        await process.log.trim(6)
    await process.log.trim(6)
    assert cluster.limits == (5, 0)


async def test_trimmer_can_die_between_any_two_requests(cluster: Cluster) -> None:
    writer = cluster.process()
    steps = floor = 0
    died = True
    while died:
        await append_many(writer.log, "a", 30)
        seen = cluster.process()
        await seen.log.floor()
        cluster.pass_time(DELAY_MS)
        floor = await writer.log.floor()
        seen.store.dies_after = seen.store.count.total() + steps
        died = await _dies(seen.log.trim(floor + 31))

        again = await writer.log.floor()
        assert floor <= again <= floor + 30
        assert cluster.numbers()[-1] == await writer.log.head()
        kept = await read_all(cluster.process().log, again)
        assert [e.number for e in kept] == list(range(again + 1, await writer.log.head() + 1))
        steps += 1
    # The floor twice, each by a read and a write, and a delete for each entry that was due.
    assert steps > 20

    cluster.pass_time(DELAY_MS)
    await writer.log.trim(1)
    assert cluster.numbers() == list(
        range(await writer.log.floor() + 1, await writer.log.head() + 1)
    )


async def _dies(call: Awaitable[None]) -> bool:
    try:
        await call
    except Killed:
        return True
    return False


# Those who slept through it.


async def test_create_delayed_past_a_deletion_is_not_acknowledged(cluster: Cluster) -> None:
    sleeper, other = cluster.process(), cluster.process()
    await append_many(sleeper.log, "a", 3)
    sleeper.store.hold()
    appending = asyncio.create_task(sleeper.log.append(b"too late"))
    await sleeper.store.held.wait()
    await append_many(other.log, "b", 5)
    await trim_and_delete(cluster, other, 8)

    sleeper.store.let_through()

    # It has created entry 4, which has long been there, and gone.
    with pytest.raises(Unavailable, match="trimmed up to 7 while entry 4"):
        await appending
    assert cluster.numbers() == [8]
    with pytest.raises(EntriesTrimmed):
        await sleeper.log.read(3)
    assert await sleeper.log.head() == 8
    assert await sleeper.log.append(b"in time") == 9
    assert [e.data for e in await read_all(other.log, 7)] == [b"b-4", b"in time"]


async def test_append_with_an_answer_delayed_past_a_trim_is_unknown(cluster: Cluster) -> None:
    sleeper, other = cluster.process(), cluster.process()
    await append_many(sleeper.log, "a", 3)
    # The entry is there, its answer is not; then others use and trim it.
    faults = {"create": Fault.LOST_ANSWER, "read": Fault.NOT_SENT}
    sleeper.store.fault = lambda kind, _: faults.get(kind, Fault.NONE)
    appending = asyncio.create_task(sleeper.log.append(b"mine"))
    await sleeper.store.asked("create", 4)
    faults.clear()
    sleeper.store.hold()
    await sleeper.store.held.wait()
    assert (await read_all(other.log))[-1] == LogEntry(4, b"mine")
    await append_many(other.log, "b", 1)
    await trim_and_delete(cluster, other, 5)

    sleeper.store.let_through()

    # It was appended, but the process cannot know: it must never append it twice.
    with pytest.raises(Unavailable, match="not known"):
        await appending
    assert await sleeper.log.head() == 5
    assert [e.data for e in await read_all(other.log, 4)] == [b"b-0"]


async def test_gap_is_not_taken_for_the_end_of_the_log(cluster: Cluster) -> None:
    sleeper, other = cluster.process(), cluster.process()
    await append_many(sleeper.log, "a", 3)
    await append_many(other.log, "b", 5)
    await trim_and_delete(cluster, other, 8)

    assert await sleeper.log.head() == 8
    with pytest.raises(EntriesTrimmed) as caught:
        await sleeper.log.read(3)
    assert caught.value.floor == 7


@pytest.mark.parametrize("call", ["read", "wait", "append", "trim"])
async def test_paused_process_learns_the_floor_first(cluster: Cluster, call: str) -> None:
    sleeper, other = cluster.process(), cluster.process()
    await append_many(sleeper.log, "a", 3)
    await append_many(other.log, "b", 5)
    await trim_and_delete(cluster, other, 9)

    if call == "read":
        with pytest.raises(EntriesTrimmed):
            await sleeper.log.read(3)
    elif call == "wait":
        assert await sleeper.log.wait(3) == 8
    elif call == "append":
        assert await sleeper.log.append(b"x") == 9
    else:
        await sleeper.log.trim(9)
    assert await other.log.head() == (9 if call == "append" else 8)


async def test_number_reused_after_deletion_is_not_trusted(cluster: Cluster) -> None:
    sleeper, reader, other = (cluster.process() for _ in range(3))
    await append_many(sleeper.log, "a", 3)
    assert len(await read_all(reader.log)) == 3
    # The sleeper creates entry 4 after it was deleted, and dies before it can clean up.
    sleeper.store.hold()
    appending = asyncio.create_task(sleeper.log.append(b"ghost"))
    await sleeper.store.held.wait()
    await append_many(other.log, "b", 5)
    await trim_and_delete(cluster, other, 8)
    sleeper.store.dies_after = 0
    sleeper.store.let_through()
    with pytest.raises(Killed):
        await appending
    assert cluster.numbers() == [4, 8]

    with pytest.raises(EntriesTrimmed):
        await reader.log.read(3)
    assert await reader.log.head() == 8
    assert await cluster.process().log.head() == 8
    with pytest.raises(EntriesTrimmed):
        await cluster.process().log.read(3)


async def test_floor_is_read_once_per_half_delay(cluster: Cluster) -> None:
    process = cluster.process()
    await append_many(process.log, "a", 10)
    assert process.store.count["read_version"] == 1
    cluster.pass_time(HALF_MS - 1)
    await append_many(process.log, "a", 10)
    assert process.store.count["read_version"] == 1
    cluster.pass_time(1)
    await append_many(process.log, "a", 10)
    assert process.store.count["read_version"] == 2


@pytest.mark.parametrize("away", ["suspended", "unnoticed", "stopped", "turned back"])
async def test_floor_is_read_after_a_suspension(cluster: Cluster, away: str) -> None:
    process = cluster.process()
    await process.log.append(b"x")
    if away in ("suspended", "unnoticed"):
        before = process.clock.now_ms()
        process.clock.suspend(HALF_MS)
        if away == "unnoticed":
            process.clock.set_wall(before)  # The wall clock has not moved.
    else:
        # A stopped virtual machine's own clocks may stand still; then only wall time tells.
        step = HALF_MS if away == "stopped" else -HALF_MS
        process.clock.set_wall(process.clock.now_ms() + step)
    await process.log.append(b"x")
    assert process.store.count["read_version"] == 2


# A floor that others tamper with.


async def test_removed_or_lowered_floor_is_detected(cluster: Cluster) -> None:
    process = cluster.process()
    await append_many(process.log, "a", 10)
    await trim_and_delete(cluster, process, 6)
    del cluster.objects[FLOOR_KEY]
    with pytest.raises(Corrupt, match=r"trimmed up to 5, but .* now says 0"):
        await process.log.floor()
    # Without the floor, a newcomer would take the log for a new one.
    for _ in range(2):
        with pytest.raises(Corrupt, match="neither what came before it"):
            await cluster.process().log.append(b"x")
    cluster.objects[FLOOR_KEY] = write_limits(FloorLimits(3, 3))
    with pytest.raises(Corrupt, match="now says 3"):
        await process.log.floor()


async def test_damaged_floor_is_detected(cluster: Cluster) -> None:
    process = cluster.process()
    await append_many(process.log, "a", 10)
    await process.log.trim(6)
    whole = cluster.objects[FLOOR_KEY]
    damaged = [whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :] for i in range(len(whole))]
    for data in [*damaged, b"", whole[:-1], whole + b"x", write_limits(FloorLimits(1, 2))]:
        cluster.objects[FLOOR_KEY] = data
        with pytest.raises(Corrupt, match=FLOOR_KEY):
            await cluster.process().log.floor()


async def test_empty_log_is_distinguished_from_one_without_its_first_entries(
    cluster: Cluster,
) -> None:
    process = cluster.process()
    assert await process.log.head() == await process.log.head() == 0
    assert process.store.count["list"] == 1
    cluster.objects[entry_key(2)] = b"x"
    with pytest.raises(Corrupt, match="neither what came before it"):
        await cluster.process().log.head()


async def test_entry_removed_by_others_is_detected(cluster: Cluster) -> None:
    process, other = cluster.process(), cluster.process()
    await append_many(process.log, "a", 10)
    assert await other.log.head() == 10
    del cluster.objects[entry_key(6)]
    assert [e.number for e in await other.log.read(4)] == [5]
    with pytest.raises(Corrupt, match="entry 6 is missing"):
        await other.log.read(5)
