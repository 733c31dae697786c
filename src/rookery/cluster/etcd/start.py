"""Makes a log begin at a number other than 1: a head without an entry below it."""

from __future__ import annotations

from rookery.cluster.etcd.client import EtcdClient
from rookery.cluster.etcd.layout import EtcdKeys, write_head
from rookery.cluster.etcd.messages import (
    TXN,
    get,
    is_absent,
    put,
    range_request,
    read_txn,
    txn_request,
)
from rookery.cluster.etcd.reader import LogBounds, ask_first, read_bounds
from rookery.cluster.port import check_empty


async def begin_after(client: EtcdClient, layout: EtcdKeys, number: int) -> None:
    """Create the head key, which must be absent.

    Raises:
        Conflict: the head key exists.
    """
    begin = put(layout.head, write_head(number))
    looks = [get(ask_first(layout)), get(range_request(layout.head))]
    request = txn_request([is_absent(layout.head)], [begin], looks)
    answer = await client.call(TXN, request)
    done = read_txn(answer.data)
    if done.succeeded:
        return
    bounds = read_bounds(layout, *done.found)
    # No other process uses the log now: in this case an earlier attempt took effect.
    if answer.tries == 1 or bounds != LogBounds(number, number):
        check_empty(bounds.head)
