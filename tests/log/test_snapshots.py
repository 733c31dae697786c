"""Snapshots in a store: newest first, damaged ones passed over, old ones removed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rookery.cluster.state.image import write_image
from rookery.formats.keys import SNAPSHOTS, snapshot_key
from rookery.log import snapshots
from rookery.store.open import open_store
from rookery.store.port import Store
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


async def test_a_damaged_snapshot_is_passed_over(store: Store) -> None:
    await snapshots.save(store, history(1, 10)[0])
    await store.create(snapshot_key(99), [b"RKSS and then nonsense"])
    loaded = await snapshots.load(store)
    assert loaded is not None
    assert loaded.applied == 10


async def test_no_snapshot_is_no_state(store: Store) -> None:
    assert await snapshots.load(store) is None


async def test_two_brokers_may_write_the_same_one(store: Store) -> None:
    state, _ = history(2, 25)
    assert await snapshots.save(store, state) == await snapshots.save(store, state) == 25


async def test_old_snapshots_go(store: Store) -> None:
    for length in (10, 20, 30, 40):
        await snapshots.save(store, history(1, length)[0])
    await snapshots.prune(store)
    keys = [item.key for item in await store.list(SNAPSHOTS)]
    assert keys == [snapshot_key(30), snapshot_key(40)]
