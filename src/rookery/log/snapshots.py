"""Snapshots of the state in the store: written, read back, and only then relied upon."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from rookery.cluster.state.image import read_head, read_image, write_image
from rookery.cluster.state.state import State
from rookery.errors import Conflict, Corrupt
from rookery.formats.keys import SNAPSHOTS, parse_snapshot_key, snapshot_key
from rookery.store.port import NotFound, Store

KEPT: Final = 2


async def save(store: Store, state: State) -> int:
    """Write a snapshot of the state as it is now and read it back; return its entry number.

    Raises:
        Corrupt: what was read back is not what was written.
    """
    number, image = state.applied, write_image(state)
    key = snapshot_key(number)
    with suppress(Conflict):  # another process that stands at the same entry wrote the same
        await store.create(key, [image])
    back = await store.read(key)
    if bytes(back) != image:
        raise Corrupt(f"snapshot {key} reads back otherwise than it was written")
    return number


async def agrees(store: Store, number: int, digest: int | None) -> bool:
    """Read a snapshot of another process back: whether it is whole, and of the state known here.

    Args:
        store: where it is.
        number: the entry it stands after.
        digest: of the state after that entry, as this process has it; None if it does not know.
    """
    try:
        head = read_head(await store.read(snapshot_key(number)))
    except (Corrupt, NotFound):
        return False
    return head.applied == number and digest in (None, head.digest)


async def load(store: Store) -> State | None:
    """Return the newest state that can be read; None if there is none."""
    for number in sorted(await _numbers(store), reverse=True):
        try:
            return read_image(await store.read(snapshot_key(number)))
        except Corrupt:
            # An older one and more of the log give the same state.
            continue
    return None


async def prune(store: Store) -> None:
    """Remove all snapshots but the newest ones."""
    for number in sorted(await _numbers(store))[:-KEPT]:
        await store.delete(snapshot_key(number))


async def _numbers(store: Store) -> list[int]:
    keys = [item.key for item in await store.list(SNAPSHOTS)]
    return [number for key in keys if (number := parse_snapshot_key(key)) is not None]
