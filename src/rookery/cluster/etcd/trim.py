"""Trimming: deletes entries from the front, then compacts etcd's history."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from rookery.cluster.etcd.appender import MAX_RUNGS
from rookery.cluster.etcd.client import EtcdClient
from rookery.cluster.etcd.layout import EtcdKeys, read_last
from rookery.cluster.etcd.messages import (
    COMPACT,
    DELETE,
    RANGE,
    TXN,
    Pair,
    compact_request,
    delete,
    delete_request,
    range_request,
    read_range,
    read_revision,
    txn_request,
    value_is,
)
from rookery.cluster.etcd.reader import LogBounds
from rookery.cluster.etcd.refusal import EtcdFull, HistoryCompacted

# The number of entries per delete request: etcd is blocked during each one.
_STEP: Final = 1000
_WRITERS: Final = 1000


async def trim(client: EtcdClient, layout: EtcdKeys, bounds: LogBounds, before: int) -> None:
    """Delete the entries below `before`, always starting at the first, so that no gap arises.

    When etcd is full, deleting and compacting are still allowed, and needed.
    """
    if bounds.floor >= before - 1:
        return
    revision = 0
    for number in range(bounds.floor + 1, before, _STEP):
        end = min(number + _STEP, before)
        request = delete_request(layout.entry(0), layout.entry(end))
        revision = read_revision((await client.call(DELETE, request)).data)
    # After the entries: a handle that finds its writer key missing can then see the reason in the
    # floor.
    await _forget_writers(client, layout, min(before, bounds.head + 1 - MAX_RUNGS))
    try:
        await client.call(COMPACT, compact_request(revision))
    except HistoryCompacted:
        # Another process has compacted further, which is fine.
        return


async def _forget_writers(client: EtcdClient, layout: EtcdKeys, before: int) -> None:
    """Delete the writer keys of handles that have not appended for a long time.

    A writer key prevents late copies of that append from taking effect. Once the head is beyond
    all rungs that a copy may have, no copy can take effect without the key either.
    """
    request = range_request(layout.writers, layout.writers_end, limit=_WRITERS)
    pairs = read_range((await client.call(RANGE, request)).data).pairs
    for pair in pairs:
        if read_last(pair.key, pair.value).number < before:
            # Some versions of etcd reject all transactions when they are full, even this one.
            with suppress(EtcdFull):
                await client.call(TXN, _forget(pair))


def _forget(pair: Pair) -> bytes:
    # Only if the handle has not appended again in the meantime.
    return txn_request([value_is(pair.key, pair.value)], [delete(pair.key)])
