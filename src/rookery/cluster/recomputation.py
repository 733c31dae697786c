"""Recomputes the state from the cluster log, independently of the state in use.

A replica does so when its digest differs from that of an entry: the result shows which is wrong.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from rookery.cluster.entry import read_entry, read_events
from rookery.cluster.port import EntriesTrimmed, ReadableLog
from rookery.cluster.state.state import State
from rookery.errors import Corrupt

LoadSnapshot = Callable[[int], Awaitable[State | None]]
_TRIES: Final = 5


async def recompute(cluster_log: ReadableLog, load: LoadSnapshot | None, number: int) -> State:
    """Return the state after an entry; after a later one if the newest snapshot is newer.

    Raises:
        Corrupt: the log was trimmed and there is no snapshot, or an entry cannot be applied.
        Unavailable: the log or the store cannot be reached.
    """
    floor = 0
    for _ in range(_TRIES):
        state = (await load(floor) if load else None) or State()
        try:
            while state.applied < number:
                await _apply_more(cluster_log, state, number)
        except EntriesTrimmed as trimmed:
            floor = trimmed.floor
            continue
        return state
    raise Corrupt(f"entries up to {floor} were trimmed, and no snapshot can be read")


async def _apply_more(cluster_log: ReadableLog, state: State, until: int) -> None:
    entries = await cluster_log.read(state.applied)
    if not entries:
        raise Corrupt(f"the cluster log ends before entry {until}, which was read from it")
    for number, data in entries:
        if number <= until:
            entry = read_entry(number, data)
            state.apply(number, entry, read_events(number, entry))
