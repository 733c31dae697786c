"""The port for what a broker's log lives on.

`objectlog.py`   a folder of this host, or an object store and a cluster log that hosts share
`directory.py`   Kafka's own data directory
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from rookery.broker.configs import TopicConfigs
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
"""Returns the settings in force for a topic; a cache makes it cheap."""


@dataclass(frozen=True, slots=True)
class BackingTraits:
    """What a broker may know of its backing, whichever implementation it has."""

    is_on_this_host: bool
    """Whether flushes go to a disk of this host; if not, they go to a store."""
    node_id: int
    """The node id that the broker must have; -1 if any will do."""
    flush: FlushSettings
    """How much is flushed together."""
    expires_offsets: bool = True
    """Whether offsets of groups without members expire."""
    hidden_apis: frozenset[int] = frozenset()
    """APIs that cannot be served from this backing, by key."""


class Maintenance(Protocol):
    """Upkeep that a log needs while brokers run: a caretaker, and checks of its snapshots."""

    def caretaker(self, next_id: Callable[[], int]) -> Caretaker:
        """Return a caretaker that names new objects by the ids given."""

    async def agrees(self, snapshot: int) -> bool:
        """Read a snapshot back and return whether it is the state that this process has applied.

        Raises:
            Unavailable: the store or the cluster log is out of reach.
        """


class Backing(Protocol):
    """The open handles of a broker's process on its log."""

    @property
    def traits(self) -> BackingTraits:
        """What the broker may know of it."""

    @property
    def cluster_log(self) -> ClusterLog:
        """The log of the cluster's events."""

    @property
    def replica(self) -> Replica:
        """The state as of the last event applied; `open` brings it up to date."""

    @property
    def reader(self) -> LogReader:
        """Reads batches for clients."""

    @property
    def cache(self) -> BlockCache | None:
        """The cache that the reader uses; None if the operating system's is enough."""

    @property
    def dependencies(self) -> Mapping[str, PendingCalls]:
        """Calls that have no answer yet, by the names that health and metrics report."""

    @property
    def probes(self) -> Mapping[str, Probe]:
        """The smallest call to a dependency, by its name."""

    @property
    def maintenance(self) -> Maintenance | None:
        """The upkeep that the broker must arrange; None if the backing does its own."""

    async def open(self, new_cluster_id: Callable[[], str]) -> None:
        """Check the log, apply all of it to the replica and make sure whose it is.

        Args:
            new_cluster_id: draws the id of the cluster if the log is that of none yet.

        Raises:
            ConfigError: the log is another cluster's, or its store ignores conditions.
            Corrupt: what is stored cannot be trusted.
            Unavailable: something is out of reach.
        """

    def node_lock(self, random: Random) -> NodeLock:
        """Return the lock by which brokers of this host claim node ids; call it after `open`."""

    def flush_target(self, numbers: Numbers) -> FlushTarget:
        """Return where the flushes of a new incarnation go.

        Raises:
            Conflict: data of that incarnation exists already.
        """

    async def start(self, tasks: PeriodicTasks) -> None:
        """Finish what the last stop interrupted, then begin the backing's own periodic tasks.

        The broker calls it once it is a member of the cluster.
        """

    async def close(self) -> None:
        """Close everything but the replica, which the broker closes first."""
