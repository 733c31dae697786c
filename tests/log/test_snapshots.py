"""Snapshots in a store: newest first, damaged ones passed over, old ones removed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from rookery.cluster.state.images.image import write_image
from rookery.errors import Unavailable
from rookery.formats.keys import NEWEST_SNAPSHOT, SNAPSHOTS, snapshot_key
from rookery.log.maintain import snapshots
from rookery.store.open import open_store
from rookery.store.port import Store, StoredObject
from tests.cluster.test_state import history


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = open_store("memory:")
    yield store
    await store.close()


async def test_the_newest_snapshot_is_loaded(store: Store) -> None:
    for length in (10, 30, 20):
        await snapshots.save(store, history(1, length)[0])
    loaded = await snapshots.load(store)
    assert loaded is not None
    assert write_image(loaded) == write_image(history(1, 30)[0])


async def test_damaged_snapshot_is_skipped(store: Store) -> None:
    await snapshots.save(store, history(1, 10)[0])
    await store.create(snapshot_key(99), [b"RKSS and then nonsense"])
    loaded = await snapshots.load(store)
    assert loaded is not None
    assert loaded.applied == 10


class Unlisted:
    """A store that must not be listed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        assert name != "list", "it was listed"
        return getattr(self._store, name)


async def loaded_at(store: Store, at_least: int = 0) -> int | None:
    state = await snapshots.load(store, at_least)
    return None if state is None else state.applied


async def test_newest_snapshot_is_found_by_its_pointer_without_a_listing(store: Store) -> None:
    unlisted = cast("Store", Unlisted(store))
    await snapshots.point(store, 0)
    assert await loaded_at(unlisted) is None
    for length in (10, 30, 20):
        await snapshots.save(store, history(1, length)[0])
    assert await loaded_at(unlisted) == 30
    await snapshots.point(store, 0)
    assert await loaded_at(unlisted) == 30


@pytest.mark.parametrize("says", [b"", b"nonsense", b"-1", b"9" * 40, b"7", b"10"])
async def test_useless_pointer_is_ignored(store: Store, says: bytes) -> None:
    for length in (10, 30):
        await store.create(snapshot_key(length), [write_image(history(1, length)[0])])
    await store.create(NEWEST_SNAPSHOT, [says])

    # 7 is not there; 10 is, but the log was trimmed further than that.
    assert await loaded_at(store, 15) == 30
    if says != b"10":
        assert await loaded_at(store) == 30


async def test_damaged_snapshot_named_by_the_pointer_is_skipped(store: Store) -> None:
    await snapshots.save(store, history(1, 10)[0])
    await store.create(snapshot_key(20), [b"RKSS and then nonsense"])
    await snapshots.point(store, 20)

    assert await loaded_at(store) == 10


class Pruned:
    """A store whose snapshots are replaced by a newer one, each time after they were listed."""

    def __init__(self, store: Store, newer: list[int]) -> None:
        self._store = store
        self._newer = newer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def list(self, prefix: str) -> list[StoredObject]:
        listed = list(await self._store.list(prefix))
        if self._newer:
            for item in listed:
                await self._store.delete(item.key)
            number = self._newer.pop(0)
            await self._store.create(snapshot_key(number), [write_image(history(1, number)[0])])
        return listed


async def test_snapshots_pruned_during_a_read_are_skipped(store: Store) -> None:
    for length in (10, 20):
        await store.create(snapshot_key(length), [write_image(history(1, length)[0])])
    assert await loaded_at(cast("Store", Pruned(store, [30, 40]))) == 40
    with pytest.raises(Unavailable, match="try again"):
        await loaded_at(cast("Store", Pruned(store, list(range(41, 60)))))


async def test_pointer_can_be_moved_concurrently(store: Store) -> None:
    await asyncio.gather(*(snapshots.point(store, number) for number in (3, 9, 1, 7, 0, 8)))

    assert await store.read(NEWEST_SNAPSHOT) == b"9"


async def test_no_snapshot_gives_no_state(store: Store) -> None:
    assert await snapshots.load(store) is None


async def test_two_brokers_can_write_the_same_snapshot(store: Store) -> None:
    state, _ = history(2, 25)
    assert await snapshots.save(store, state) == await snapshots.save(store, state) == 25


async def test_old_snapshots_are_deleted(store: Store) -> None:
    for length in (10, 20, 30, 40):
        await snapshots.save(store, history(1, length)[0])
    await snapshots.prune(store)
    keys = [item.key for item in await store.list(SNAPSHOTS)]
    assert keys == [snapshot_key(30), snapshot_key(40)]
