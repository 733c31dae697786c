"""Offsets reach the store with other objects, without requests of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.log.site import Site, batch


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    site = Site(tmp_path)
    yield site
    await site.close()


async def objects(site: Site) -> int:
    return len(await site.store.list("_rookery/objects/"))


async def test_busy_writer_needs_no_more_objects_than_flushes(site: Site) -> None:
    # Given a writer that is looked after every second
    writer = await site.begin()
    # When it flushes every four seconds
    for _ in range(4):
        await writer.write(batch(0))
        for _ in range(4):
            site.clock.advance(1000)
            await writer.uploads.maintain()
    # Then each flush is one object
    assert await objects(site) == 4


async def test_quiet_writer_records_its_last_offsets_once(site: Site) -> None:
    # Given a flush whose offsets no other object carries
    writer = await site.begin()
    await writer.write(batch(0))
    # When nothing comes for long
    site.clock.advance(60_000)
    await writer.uploads.maintain()
    # Then they are written
    assert await objects(site) == 2
    # And not again
    site.clock.advance(60_000)
    await writer.uploads.maintain()
    assert await objects(site) == 2
