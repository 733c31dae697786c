"""Memory is returned to the system after a peak of any length, with few useless tries."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rookery.service.memory import LONGEST_WAIT, Memory

MEBIBYTE = 1024 * 1024
LEAST = 50 * MEBIBYTE
WORTH = 32 * MEBIBYTE
"""Returning less is not worth its cost."""


class FakeHeap:
    """A process with memory in use, and free memory that it still holds."""

    def __init__(self) -> None:
        self.used = LEAST
        self.free = 0
        self.tries = 0
        self.memory = Memory(lambda: self.used + self.free, self._give_back)

    @property
    def resident(self) -> int:
        return self.used + self.free

    def allocate(self, count: int) -> None:
        """Use memory, the free one first."""
        self.used += count
        self.free = max(0, self.free - count)

    def release(self, count: int) -> None:
        """Free memory that was in use."""
        self.used -= count
        self.free += count

    async def check(self, count: int = 1) -> int:
        """Let time pass; return the number of tries."""
        before = self.tries
        for _ in range(count):
            await self.memory.tidy()
        return self.tries - before

    def _give_back(self) -> None:
        self.tries += 1
        self.free = 0


async def test_peak_between_two_checks_is_returned_at_the_next() -> None:
    process = FakeHeap()
    process.allocate(400 * MEBIBYTE)
    process.release(400 * MEBIBYTE)

    assert await process.check() == 1

    assert process.resident == LEAST


@pytest.mark.parametrize("length", [1, 10, 100, 1_000, 10_000])
async def test_memory_is_returned_within_a_bounded_time_after_a_peak_of_any_length(
    length: int,
) -> None:
    process = FakeHeap()
    process.allocate(400 * MEBIBYTE)
    await process.check(length)
    process.release(400 * MEBIBYTE)

    await process.check(min(length + 1, LONGEST_WAIT))

    assert process.resident == LEAST


async def test_peak_after_a_long_one_is_returned_as_soon_as_the_first() -> None:
    process = FakeHeap()
    process.allocate(400 * MEBIBYTE)
    await process.check(1_000)
    process.allocate(200 * MEBIBYTE)
    assert await process.check() == 1
    process.release(200 * MEBIBYTE)

    await process.check()

    assert process.resident == LEAST + 400 * MEBIBYTE


async def test_memory_that_is_freed_in_parts_is_returned() -> None:
    process = FakeHeap()
    process.allocate(400 * MEBIBYTE)
    await process.check(20)
    for _ in range(40):
        process.release(10 * MEBIBYTE)
        await process.check()

    await process.check(40)

    assert process.resident < LEAST + WORTH


async def test_memory_in_use_is_searched_rarely() -> None:
    process = FakeHeap()
    process.allocate(400 * MEBIBYTE)

    assert await process.check(100) < 10
    assert await process.check(10_000) <= 10_000 / LONGEST_WAIT + 1


async def test_requests_of_a_large_process_do_not_make_it_try_at_each_check() -> None:
    """Each frees a few megabytes, which the next one takes again."""
    process = FakeHeap()
    process.allocate(400 * MEBIBYTE)
    await process.check(1_000)
    tries = 0
    for _ in range(1_000):
        process.allocate(20 * MEBIBYTE)
        process.release(20 * MEBIBYTE)
        tries += await process.check()

    assert tries <= 1_000 / LONGEST_WAIT + 1


async def test_growing_process_tries_less_and_less() -> None:
    process = FakeHeap()
    tries = []
    for _ in range(2):
        before = process.tries
        for _ in range(200):
            process.allocate(10 * MEBIBYTE)
            await process.check()
        tries.append(process.tries - before)

    assert tries[1] < tries[0] < 100


async def test_small_process_does_not_try() -> None:
    process = FakeHeap()
    process.allocate(WORTH - 1)
    process.release(WORTH - 1)

    assert await process.check(1_000) == 0


# In a process of its own: in one that has run other tests, freed memory is taken again first.
_SERVER = """
import asyncio
from rookery.service import memory
from rookery.service.process import StopRequest, run_server
from rookery.testing.wait import wait_until_async

MEBIBYTE = 1024 * 1024
memory._INTERVAL_MS = 10

class Server:
    name = "server"

    def __init__(self):
        self.failed = asyncio.get_running_loop().create_future()

    async def start(self):
        pass

    def waits_for(self):
        return ""

    async def stop(self):
        pass

    abandon = stop

async def peak(stop, is_ready):
    await is_ready.wait()
    before = memory.resident_bytes()
    # Between blocks that stay, so that the allocator cannot give them back by itself.
    blocks = [bytearray(b"\\x01") * 100_000 for _ in range(1000)]
    kept = blocks[::50]
    assert memory.resident_bytes() - before > 64 * MEBIBYTE
    del blocks
    await wait_until_async(lambda: memory.resident_bytes() - before < 32 * MEBIBYTE)
    assert len(kept) == 20
    stop.wanted.set()

async def main():
    stop, is_ready = StopRequest(), asyncio.Event()
    serving = asyncio.create_task(run_server(Server(), stop, is_ready.set, 0))
    await peak(stop, is_ready)
    assert await serving == 0

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells, and only glibc gives back")
def test_server_process_returns_freed_memory() -> None:
    done = subprocess.run([sys.executable, "-c", _SERVER], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
