"""Finds out whether a cluster log was lost, before anyone takes it for a new one.

Who began anew in an empty log beside the objects of an old one would give the names of these
objects again, and sweep them as orphans.
"""

from __future__ import annotations

from rookery.cluster.port import ClusterLog
from rookery.errors import Corrupt
from rookery.formats.keys import OBJECTS, SNAPSHOTS, parse_snapshot_key
from rookery.store.port import Store


async def check_not_lost(cluster_log: ClusterLog, store: Store) -> None:
    """Refuse a cluster log that ends before what the store holds.

    Raises:
        Corrupt: its data was lost; the text says what to do.
        Unavailable: the log or the store is out of reach.
    """
    # The list first: the log has all that a snapshot has been made of.
    listed = [parse_snapshot_key(item.key) for item in await store.list(SNAPSHOTS)]
    newest = max((number for number in listed if number is not None), default=0)
    head = await cluster_log.head()
    if head < newest:
        raise Corrupt(
            f"the cluster log ends at entry {head}, but the store has a snapshot of entry {newest}:"
            " the log's data was lost, or this is not its store; if it was lost, stop all brokers "
            "and run `rookery recover`"
        )
    # The head again after the list: another process may begin the cluster meanwhile.
    if not head and await store.list(OBJECTS) and not await cluster_log.head():
        raise Corrupt(
            f"the cluster log is empty, but the store has objects under {OBJECTS}: the log's data "
            "was lost, or this is not its store; if it was lost, stop all brokers and run "
            "`rookery recover`"
        )
