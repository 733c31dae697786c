"""Snapshots of the state in the store, which are read back before they are relied on.

A small object names the newest snapshot, so that opening a log needs no listing. Its number only
increases, and only after that snapshot was read back. It is a hint. If it is missing, too low, or
names an unreadable snapshot, the snapshots are listed.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

from rookery.cluster.state.images.image import read_head, read_image, write_image
from rookery.cluster.state.state import State
from rookery.errors import Conflict, Corrupt, Unavailable
from rookery.formats.keys import NEWEST_SNAPSHOT, SNAPSHOTS, parse_snapshot_key, snapshot_key
from rookery.store.port import NotFound, ReadableStore, Store

KEPT: Final = 2
_LISTS: Final = 5
_NUMBER: Final = re.compile(rb"[0-9]{1,19}")


async def save(store: Store, state: State) -> int:
    """Write a snapshot of the current state and read it back; return its entry number.

    Raises:
        Corrupt: the bytes read back differ from the bytes written.
    """
    number, image = state.applied, write_image(state)
    key = snapshot_key(number)
    with suppress(Conflict):  # another process at the same entry wrote the same bytes
        await store.create(key, [image])
    back = await store.read(key)
    if bytes(back) != image:
        raise Corrupt(f"snapshot {key} reads back otherwise than it was written")
    # Before the snapshot is relied on: after a trim, readers depend on the snapshot named here.
    await point(store, number)
    return number


async def point(store: Store, number: int) -> None:
    """Record that a snapshot is the newest, unless a newer one is recorded; 0 means none.

    Raises:
        Unavailable: the store cannot be reached.
    """
    while True:
        pointer = await store.read_version(NEWEST_SNAPSHOT)
        try:
            if pointer is None:
                await store.create(NEWEST_SNAPSHOT, [b"%d" % number])
            elif (_parse(pointer[0]) or 0) < number:
                await store.replace(NEWEST_SNAPSHOT, b"%d" % number, pointer[1])
        except Conflict:
            continue  # another process has moved it
        return


async def agrees(store: ReadableStore, number: int, digest: int | None) -> bool:
    """Read a snapshot of another process; return whether it is intact and matches our state.

    Args:
        store: stores the snapshot.
        number: the entry after which it was taken.
        digest: the digest of the state after that entry in this process; None if it is not known.
    """
    try:
        head = read_head(await store.read(snapshot_key(number)))
    except (Corrupt, NotFound):
        return False
    return head.applied == number and digest in (None, head.digest)


async def load(store: ReadableStore, at_least: int = 0) -> State | None:
    """Return the newest state that can be read; None if there is none.

    Args:
        store: stores the snapshots.
        at_least: the lowest acceptable entry of the snapshot.
    """
    pointer = await store.read_version(NEWEST_SNAPSHOT)
    number = None if pointer is None else _parse(pointer[0])
    if number is not None and number >= at_least:
        if not number:
            return None
        with suppress(Corrupt, NotFound):
            return read_image(await store.read(snapshot_key(number)))
    return await _load_listed(store)


async def _load_listed(store: ReadableStore) -> State | None:
    for _ in range(_LISTS):
        is_outdated = False
        for number in sorted(await _numbers(store), reverse=True):
            try:
                return read_image(await store.read(snapshot_key(number)))
            except Corrupt:
                # An older snapshot and more of the log give the same state.
                continue
            except NotFound:
                is_outdated = True
        if not is_outdated:
            return None
        # Snapshots are pruned only after newer ones were written: list again.
    raise Unavailable(f"snapshots were pruned while they were read, {_LISTS} times; try again")


async def prune(store: Store) -> None:
    """Remove all snapshots but the newest ones."""
    for number in sorted(await _numbers(store))[:-KEPT]:
        await store.delete(snapshot_key(number))


def _parse(data: bytes) -> int | None:
    return int(data) if _NUMBER.fullmatch(data) else None


async def _numbers(store: ReadableStore) -> list[int]:
    keys = [item.key for item in await store.list(SNAPSHOTS)]
    return [number for key in keys if (number := parse_snapshot_key(key)) is not None]
