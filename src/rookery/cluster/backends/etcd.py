"""A cluster log in etcd, shared by brokers on many hosts: `etcd://host:2379,host:2379/name`.

Several logs can share one etcd, each under its own name; `cluster/etcd/address.py` describes the
options of the URL. etcd syncs every transaction on a majority of its members, so an append is on
disk whatever the handle's durability.

Opening makes no connection: the first call finds out whether etcd is reachable. Trimming deletes
entries and compacts etcd's history of all keys, so a program that needs older revisions must not
share the etcd. Trimming does not shrink the members' files; etcd reuses the space. To shrink them,
run `etcdctl defrag` on one member at a time, because it blocks the member.
"""

from __future__ import annotations

import logging

from rookery.clock import Random, SystemRandom
from rookery.cluster.port import (
    READ_BYTES,
    ClusterLog,
    ClusterLogTraits,
    Durability,
    LogEntry,
    check_beginning,
    check_empty,
    check_entry,
    check_trim,
)
from rookery.errors import ConfigError, Unavailable

try:
    from rookery.cluster.etcd.rpc import grpc  # noqa: F401 (asked for here, so that the advice can be given)
except ImportError as error:
    raise ConfigError("a cluster log in etcd needs grpcio: pip install 'rookery[etcd]'") from error

from rookery.cluster.etcd.address import EtcdAddress, parse
from rookery.cluster.etcd.appender import EtcdAppender
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
from rookery.cluster.etcd.reader import EtcdReader, LogBounds, ask_first, read_bounds
from rookery.cluster.etcd.trim import trim
from rookery.cluster.etcd.watch import HeadWatch

log = logging.getLogger(__name__)


def traits(url: str) -> ClusterLogTraits:
    """Return the traits: if etcd is lost, all data that only etcd held is lost."""
    return ClusterLogTraits(
        is_as_durable_as_store=False, plaintext_members=parse(url).plaintext_members
    )


def open(url: str, durability: Durability) -> ClusterLog:  # noqa: A001, ARG001 (a backend's interface)
    """Open a handle on the log that the URL names."""
    address = parse(url)
    if address.plaintext_members:
        log.warning(
            "connections to %s are not encrypted: an observer of the network can read the cluster "
            "log with its credentials; use TLS (tls=on or ca=FILE in the URL)",
            address,
        )
    return EtcdLog(address)


class EtcdLog:
    """One handle on a log in etcd."""

    def __init__(self, address: EtcdAddress, random: Random | None = None) -> None:
        self._client = EtcdClient(address)
        self._layout = EtcdKeys(address.name)
        self._watch = HeadWatch(self._client, self._layout)
        self._reader = EtcdReader(self._client, self._layout)
        self._appender = EtcdAppender(
            self._client, self._layout, random or SystemRandom(), self._watch
        )
        self._closed = False

    async def append(self, data: bytes) -> int:
        """Commit one entry, together with other queued entries."""
        self._check_open()
        check_entry(data)
        return await self._appender.append(bytes(data))

    async def read(self, after: int, max_bytes: int = READ_BYTES) -> list[LogEntry]:
        """Return the entries that follow number `after`."""
        self._check_open()
        entries = await self._reader.read(after, max_bytes)
        if entries:
            self._watch.on_moved(entries[-1].number)
        return entries

    async def head(self) -> int:
        """Return the last entry's number."""
        self._check_open()
        return await self._watch.look()

    async def wait(self, after: int) -> int:
        """Return a head above `after`, as soon as there is one."""
        self._check_open()
        return await self._watch.wait(after)

    async def trim(self, before: int) -> None:
        """Delete the entries below `before`, and compact etcd's history."""
        self._check_open()
        bounds = await self._reader.bounds()
        check_trim(before, bounds.head)
        await trim(self._client, self._layout, bounds, before)

    async def floor(self) -> int:
        """Return the highest number that was trimmed."""
        self._check_open()
        return (await self._reader.bounds()).floor

    async def begin_after(self, number: int) -> None:
        """Begin after a number, if there has never been an entry."""
        self._check_open()
        check_beginning(number)
        await _create_head(self._client, self._layout, number)
        self._watch.on_moved(number)

    async def close(self) -> None:
        """Close the handle after the appends in progress."""
        if self._closed:
            return
        self._closed = True
        await self._watch.close(_closed())
        await self._appender.close()
        await self._client.close()

    def _check_open(self) -> None:
        if self._closed:
            raise _closed()


def _closed() -> Unavailable:
    return Unavailable("this handle on the cluster log was closed: open another")


async def _create_head(client: EtcdClient, layout: EtcdKeys, number: int) -> None:
    """Make the log begin after a number: a head without an entry below it.

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
    bounds = read_bounds(layout, *done.results)
    # No other process uses the log now: in this case an earlier attempt took effect.
    if answer.tries == 1 or bounds != LogBounds(number, number):
        check_empty(bounds.head)
