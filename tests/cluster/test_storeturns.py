"""Writers that take turns on a slow store, in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence

import pytest

from rookery.cluster.backends.store import StoreLog
from rookery.store.backends.memory import MemoryStore
from rookery.store.port import Buffer
from rookery.testing.clock import ManualClock, SeededRandom
from rookery.testing.virtualtime import run_virtually

PUT_SECONDS = 0.05
GET_SECONDS = 0.02


class Distant(MemoryStore):
    """A store whose requests take about as long as in a region's object storage."""

    def __init__(self, objects: dict[str, bytes], chance: random.Random) -> None:
        super().__init__(objects)
        self._chance = chance

    async def create(self, key: str, parts: Sequence[Buffer]) -> None:
        seconds = PUT_SECONDS * self._chance.uniform(0.8, 1.4)
        await asyncio.sleep(seconds * 0.6)
        try:
            await super().create(key, parts)
        finally:
            await asyncio.sleep(seconds * 0.4)

    async def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        seconds = GET_SECONDS * self._chance.uniform(0.8, 1.4)
        await asyncio.sleep(seconds * 0.6)
        try:
            return await super().read(key, start, size)
        finally:
            await asyncio.sleep(seconds * 0.4)


class Race:
    """Writers that append without a break for a minute, and how long each append took."""

    def __init__(self, writers: int, seed: int) -> None:
        self._objects: dict[str, bytes] = {}
        self._chance = random.Random(seed)
        self.took: Mapping[int, list[float]] = {writer: [] for writer in range(writers)}

    async def run(self) -> None:
        await asyncio.gather(*map(self._write, self.took))

    async def _write(self, writer: int) -> None:
        loop = asyncio.get_running_loop()
        store = Distant(self._objects, self._chance)
        log = StoreLog(store, "distant", clock=ManualClock(), random=SeededRandom(writer))
        while (began := loop.time()) < 60:
            await log.append(b"x")
            self.took[writer].append(loop.time() - began)
        await log.close()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("writers", [2, 3, 4])
def test_all_writers_under_load_make_progress(writers: int, seed: int) -> None:
    race = Race(writers, seed)
    run_virtually(race.run())
    counts = [len(took) for took in race.took.values()]
    # Without rests, some appends take from 6 to 19 seconds.
    assert min(counts) > sum(counts) / writers / 2
    assert max(max(took) for took in race.took.values()) < 3.0
    assert sum(counts) > 60 * 8


def test_single_writer_hardly_pauses() -> None:
    race = Race(1, seed=7)
    run_virtually(race.run())
    assert len(race.took[0]) > 0.85 * 60 / (PUT_SECONDS * 1.1)
