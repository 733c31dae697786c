"""Trimming: entries are deleted from the front, then etcd forgets that they were there."""

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
from rookery.cluster.etcd.refusal import Full, HistoryCompacted

# How many entries one delete takes: etcd does nothing else meanwhile.
_STEP: Final = 1000
_WRITERS: Final = 1000


async def trim(client: EtcdClient, layout: EtcdKeys, bounds: LogBounds, before: int) -> None:
    """Delete the entries below `before`, always from the first one on, so that no hole is left.

    Deleting and compacting are allowed, and needed, when etcd is full.
    """
    if bounds.floor >= before - 1:
        return
    revision = 0
    for number in range(bounds.floor + 1, before, _STEP):
        end = min(number + _STEP, before)
        request = delete_request(layout.entry(0), layout.entry(end))
        revision = read_revision((await client.call(DELETE, request)).data)
    # After the entries, so that whoever misses what it wrote down sees by the floor why.
    await _forget_writers(client, layout, min(before, bounds.head + 1 - MAX_RUNGS))
    try:
        await client.call(COMPACT, compact_request(revision))
    except HistoryCompacted:
        # Another has compacted further: so much the better.
        return


async def _forget_writers(client: EtcdClient, layout: EtcdKeys, before: int) -> None:
    """Delete what handles that have long been silent wrote down about their last append.

    It keeps late copies of that append from having an effect. Without it none can have one
    either once the head has moved beyond all rungs that a copy may have.
    """
    request = range_request(layout.writers, layout.writers_end, limit=_WRITERS)
    pairs = read_range((await client.call(RANGE, request)).data).pairs
    for pair in pairs:
        if read_last(pair.key, pair.value).number < before:
            # Some versions of etcd refuse all transactions when they are full, even this one.
            with suppress(Full):
                await client.call(TXN, _forget(pair))


def _forget(pair: Pair) -> bytes:
    # Not if the handle has appended again meanwhile.
    return txn_request([value_is(pair.key, pair.value)], [delete(pair.key)])
