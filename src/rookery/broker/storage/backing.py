"""The port for the storage of a broker's log.

`objectlog.py`   a folder of this host, or an object store and a cluster log that hosts share
`directory.py`   Kafka's own data directory
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from rookery.broker.config.configs import TopicConfigs
from rookery.broker.process.nodelock import NodeLock
from rookery.clock import Random
from rookery.cluster.numbers import Numbers
from rookery.cluster.port import ClusterLog
from rookery.cluster.replica import Replica
from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic
from rookery.log.maintain.caretaker import Caretaker
from rookery.log.read.cache import BlockCache
from rookery.log.read.reader import LogReader
from rookery.log.write.flushtarget import FlushSettings, FlushTarget
from rookery.service.periodic import PeriodicTasks
from rookery.service.stalls import Probe
from rookery.store.pendingcalls import PendingCalls

TopicConfigsOf = Callable[[State, Topic], TopicConfigs]
"""Returns the effective settings of a topic; a cache makes it cheap."""


@dataclass(frozen=True, slots=True)
class BackingTraits:
    """Properties of a backing that the broker can use, independent of the implementation."""

    is_on_this_host: bool
    """Whether flushes go to a disk of this host; otherwise they go to a store."""
    node_id: int
    """The node id that the broker must use; -1 if any id is allowed."""
    flush: FlushSettings
    """The limits for grouping batches into a flush."""
    expires_offsets: bool = True
    """Whether offsets of groups without members expire."""
    hidden_apis: frozenset[int] = frozenset()
    """The keys of APIs that cannot be served from this backing."""


class Maintenance(Protocol):
    """Maintenance of a log while brokers run: a caretaker, and verification of its snapshots."""

    def caretaker(self, next_id: Callable[[], int]) -> Caretaker:
        """Return a caretaker that takes the ids of new objects from `next_id`."""

    async def agrees(self, snapshot: int) -> bool:
        """Read a snapshot back and return whether it equals the state applied by this process.

        Raises:
            Unavailable: the store or the cluster log is unreachable.
        """


class Backing(Protocol):
    """The open handles of a broker process on its log."""

    @property
    def traits(self) -> BackingTraits:
        """The properties that the broker can use."""

    @property
    def cluster_log(self) -> ClusterLog:
        """The log of the cluster's events."""

    @property
    def replica(self) -> Replica:
        """The state after the last applied event; `open` brings it up to date."""

    @property
    def reader(self) -> LogReader:
        """Reads batches for clients."""

    @property
    def cache(self) -> BlockCache | None:
        """The cache that the reader uses; None if the operating system's page cache is enough."""

    @property
    def dependencies(self) -> Mapping[str, PendingCalls]:
        """The pending calls of each dependency, by the names that health and metrics report."""

    @property
    def probes(self) -> Mapping[str, Probe]:
        """The cheapest call to each dependency, by its name."""

    @property
    def maintenance(self) -> Maintenance | None:
        """The maintenance that the broker must run; None if the backing runs its own."""

    async def open(self, new_cluster_id: Callable[[], str]) -> None:
        """Check the log, apply all of it to the replica and verify the cluster id.

        Args:
            new_cluster_id: returns a new cluster id if the log has none yet.

        Raises:
            ConfigError: the log belongs to another cluster, or its store ignores conditions.
            Corrupt: the stored data is damaged.
            Unavailable: a dependency is unreachable.
        """

    def node_lock(self, random: Random) -> NodeLock:
        """Return the lock with which brokers of this host claim node ids; call it after `open`."""

    def flush_target(self, numbers: Numbers) -> FlushTarget:
        """Return the flush target of a new incarnation.

        Raises:
            Conflict: data of that incarnation already exists.
        """

    async def start(self, tasks: PeriodicTasks) -> None:
        """Finish work that the last stop interrupted, then start the backing's periodic tasks.

        The broker calls it after it has joined the cluster.
        """

    async def close(self) -> None:
        """Close everything but the replica, which the broker closes first."""
