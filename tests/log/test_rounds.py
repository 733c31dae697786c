"""How much the rewriter does before other upkeep has its turn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.log.rewriting import SMALL, a_world

PARTITIONS = 6


async def test_backlog_is_processed_over_several_rounds(tmp_path: Path) -> None:
    # A snapshot and the sweep would otherwise wait for all of it.
    async with a_world(tmp_path) as world:
        await world.topic(PARTITIONS)
        for _ in range(12):
            await world.produce(range(PARTITIONS), size=1_000, where="object")
        process = await world.process()
        before = await world.seen(process)
        rewriter = process.rewriter(world, replace(SMALL, round_bytes=1))

        rounds = 0
        while await rewriter.run():
            rounds += 1
            assert await world.seen(process) == before

        assert rounds >= PARTITIONS
