"""Detects a lost cluster log before a process treats it as a new one.

Without this check, a process could start in an empty log next to the objects of an old one. It
would reuse the names of these objects and sweep them as orphans.
"""

from __future__ import annotations

from rookery.cluster.port import ReadableLog
from rookery.errors import Corrupt
from rookery.formats.keys import OBJECTS, SNAPSHOTS, parse_snapshot_key
from rookery.store.port import ReadableStore


async def check_not_lost(cluster_log: ReadableLog, store: ReadableStore) -> None:
    """Reject a cluster log that ends before the data in the store.

    Raises:
        Corrupt: its data was lost; the text says what to do.
        Unavailable: the log or the store cannot be reached.
    """
    # The listing comes first: the log contains every entry that a snapshot was made from.
    listed = [parse_snapshot_key(item.key) for item in await store.list(SNAPSHOTS)]
    newest = max((number for number in listed if number is not None), default=0)
    head = await cluster_log.head()
    if head < newest:
        raise Corrupt(
            f"the cluster log ends at entry {head}, but the store has a snapshot of entry {newest}:"
            " the log's data was lost, or this is not its store; if it was lost, stop all brokers "
            "and run `rookery recover`"
        )
    # Read the head again after the listing: another process may start the cluster meanwhile.
    if not head and await store.list(OBJECTS) and not await cluster_log.head():
        raise Corrupt(
            f"the cluster log is empty, but the store has objects under {OBJECTS}: the log's data "
            "was lost, or this is not its store; if it was lost, stop all brokers and run "
            "`rookery recover`"
        )
