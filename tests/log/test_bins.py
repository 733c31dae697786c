"""Objects that are listed in the store, and those that disappear meanwhile."""

from __future__ import annotations

from rookery.cluster.state.state import State
from rookery.formats.keys import STORED, object_id, object_key
from rookery.log.maintain.bins import ObjectBin
from rookery.store.open import open_store
from rookery.store.probe import PROBES
from rookery.testing.clock import ManualClock


async def test_leftovers_of_a_killed_probe_are_deleted_after_a_delay() -> None:
    store, identity = open_store("memory:"), object_id(3, STORED)
    await store.create(object_key(identity), [b"batches"])
    await store.create(f"{PROBES}left", [b"0"])
    objects = ObjectBin(None, store, State, "default", clock := ManualClock())

    # One that is under way must not be disturbed, however often it is listed.
    assert await objects.find() == [identity]
    assert await objects.find() == [identity]
    assert [item.key for item in await store.list(PROBES)] == [f"{PROBES}left"]
    await store.create(f"{PROBES}new", [b"0"])
    clock.advance(20_000)

    assert await objects.find() == [identity]
    assert [item.key for item in await store.list(PROBES)] == [f"{PROBES}new"]
