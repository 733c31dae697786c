"""The brokers of a cluster, and the disks they use."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.client.client import Client
from rookery.client.diagnostics import LogDirDescription
from rookery.errors import ErrorCode
from rookery.model.partition import TopicPartition


@dataclass(frozen=True, slots=True)
class BrokerOverview:
    """A broker of the cluster."""

    id: int
    host: str
    port: int
    rack: str | None
    is_controller: bool


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """A cluster and its brokers, sorted by id."""

    cluster_id: str
    brokers: tuple[BrokerOverview, ...]


@dataclass(frozen=True, slots=True)
class LogDirOverview:
    """A log directory of one broker."""

    broker: int
    path: str
    is_usable: bool
    partitions: int
    size_bytes: int
    """The bytes of all replicas in it."""
    total_bytes: int | None
    """The size of the disk; None if the broker does not report it, or the log is in a store."""
    usable_bytes: int | None


async def describe_cluster(client: Client) -> ClusterOverview:
    """Return the cluster's id and brokers."""
    cluster = await client.admin.describe_cluster()
    brokers = tuple(
        BrokerOverview(
            id=node.id,
            host=node.host,
            port=node.port,
            rack=node.rack,
            is_controller=node.id == cluster.controller_id,
        )
        for node in sorted(cluster.brokers, key=lambda node: node.id)
    )
    return ClusterOverview(cluster.cluster_id, brokers)


async def list_log_dirs(client: Client) -> tuple[LogDirOverview, ...]:
    """Return the log directories of all brokers, sorted by broker."""
    return tuple(
        _log_dir(broker, directory)
        for broker, directories in (await client.diagnostics.log_dirs()).items()
        for directory in directories
    )


async def partition_sizes(client: Client) -> dict[TopicPartition, int]:
    """Return the size of every partition in bytes: that of its largest replica."""
    sizes: dict[TopicPartition, int] = {}
    for directories in (await client.diagnostics.log_dirs()).values():
        for directory in directories:
            for place, size in directory.sizes.items():
                sizes[place] = max(size, sizes.get(place, 0))
    return sizes


def _log_dir(broker: int, directory: LogDirDescription) -> LogDirOverview:
    return LogDirOverview(
        broker=broker,
        path=directory.path,
        is_usable=directory.error is ErrorCode.NONE,
        partitions=len(directory.sizes),
        size_bytes=sum(directory.sizes.values()),
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
    )
