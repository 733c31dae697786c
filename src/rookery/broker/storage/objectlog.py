"""The backing of our own objects: in a folder of this host, or in a store that all hosts share.

no store set   journal and SQLite in the data folder, objects in a store beneath it
a store set    nothing on this host: objects in that store, agreement in the cluster log
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import gettempdir

from rookery.broker.process.nodelock import NodeLock
from rookery.broker.settings import BrokerSettings
from rookery.broker.storage.backing import BackingTraits, TopicConfigsOf
from rookery.broker.storage.maintenance import ObjectMaintenance, snapshot_entries
from rookery.clock import Clock, Random
from rookery.cluster.entry import MAX_PAYLOAD_BYTES, Entry
from rookery.cluster.events.brokerevents import ClusterCreated
from rookery.cluster.numbers import Numbers
from rookery.cluster.port import ClusterLogTraits
from rookery.cluster.replica import Replica
from rookery.cluster.state.state import FEATURE_LEVEL, EntryOutcome
from rookery.errors import ConfigError, Conflict
from rookery.formats.keys import CLUSTER
from rookery.log.check.survey import BOOT_ID, JournalSurvey
from rookery.log.lostlog import check_not_lost
from rookery.log.maintain import snapshots
from rookery.log.maintain.reclaim import Reclaimer
from rookery.log.origin import Handles, LogLocation
from rookery.log.read.cache import BlockCache
from rookery.log.read.files import JournalFiles
from rookery.log.read.reader import LogReader
from rookery.log.read.segmentindex import Layouts
from rookery.log.read.tail import Tail
from rookery.log.settings import CacheSettings
from rookery.log.write.flushtarget import FlushSettings, FlushTarget, JournalTarget
from rookery.log.write.journal import Journal
from rookery.log.write.uploads import Uploads
from rookery.service.periodic import PeriodicTasks
from rookery.store.open import name_of, store_traits
from rookery.store.pendingcalls import PendingCalls
from rookery.store.probe import probe

log = logging.getLogger(__name__)


class ObjectLogBacking:
    """A broker's handles on a cluster log, a store and, for a local folder, journals."""

    def __init__(
        self, settings: BrokerSettings, clock: Clock, tail: Tail, topic_configs: TopicConfigsOf
    ) -> None:
        """Open the dependencies in the settings; `open_backing` documents the arguments.

        Raises:
            ConfigError: a setting cannot be used, or two contradict each other.
            Unavailable: a dependency is unreachable.
        """
        self.handles = handles = open_handles(settings, clock)
        self._settings = settings
        self._clock = clock
        origin = handles.origin
        self.traits = BackingTraits(
            is_on_this_host=origin.is_local,
            node_id=settings.node_id,
            flush=_flush_settings(settings, origin.log_traits),
        )
        self._journal_calls = PendingCalls(f"journal in {origin.folder}", clock)
        self.dependencies = {"store": handles.store_calls, "cluster log": handles.log_calls}
        if origin.is_local:
            self.dependencies["disk"] = self._journal_calls
        self.probes = {"store": partial(handles.store.size, CLUSTER)}
        self.cluster_log = handles.cluster_log
        self.replica = replica_of(handles, clock)
        self.replica.listen(self._drop_deleted)
        places = handles.places(lambda: self.replica.state)
        cache_settings = CacheSettings(max_bytes=settings.cache_bytes)
        self.cache = BlockCache(places.read, cache_settings, places.name)
        self._layouts = Layouts(places, self.cache.read)
        # Long runs on a local disk bypass the cache: the system's page cache holds them.
        direct = places.read if origin.is_local else None
        self.reader = LogReader(self.cluster_log, self.cache, tail, direct, self._layouts)
        self.maintenance = ObjectMaintenance(handles, settings, self.replica, clock, topic_configs)
        self.lost_records = 0
        """The number of records that were acknowledged without a sync and lost in a crash."""

    async def open(self, new_cluster_id: Callable[[], str]) -> None:
        """Check the store, apply the cluster log, and mark the store as owned by this cluster."""
        await check_store(self.handles)
        await self.replica.open()
        await claim_store(self.handles, self.replica, new_cluster_id)
        await self._shorten_next_start()

    async def _shorten_next_start(self) -> None:
        """Write a snapshot if many entries were replayed, so that the next start is faster."""
        store, replica = self.handles.store, self.replica
        await snapshots.point(store, replica.opened_at)
        if replica.state.applied - replica.opened_at >= snapshot_entries(
            self._settings, self.handles.origin
        ):
            await snapshots.save(store, replica.state)

    def node_lock(self, random: Random) -> NodeLock:
        """Return a lock on a file that all brokers of this host and cluster share.

        Brokers with a data folder have the file in that folder. Brokers with a store have one in
        the host's temporary folder. Another host can have a file that looks the same.
        """
        if self.traits.is_on_this_host:
            return NodeLock(self.handles.origin.folder / "nodes.lock", "", random)
        boot_id = BOOT_ID.read_text() if BOOT_ID.exists() else ""
        if not boot_id:
            return NodeLock(None, "", random)
        cluster_id = self.replica.state.cluster_id
        return NodeLock(Path(gettempdir()) / f"rookery-{cluster_id}.lock", boot_id, random)

    def flush_target(self, numbers: Numbers) -> FlushTarget:
        """Return a new journal of the incarnation, or the store."""
        if self.handles.journals is None:
            return Uploads(self.handles.store, self.replica, self._clock, numbers)
        journal = Journal(
            self.handles.journals,
            numbers.incarnation,
            self._settings.durability,
            clock=self._clock,
        )
        reclaimer = Reclaimer(journal, self.replica, self._clock)
        return JournalTarget(journal, self._journal_calls, reclaimer)

    async def start(self, _tasks: PeriodicTasks) -> None:
        """Check for records lost in a machine crash, if the durability setting allows for it."""
        files = self.handles.files
        if files is not None and self._settings.durability != "disk":
            await self._survey(files)

    async def _survey(self, files: JournalFiles) -> None:
        survey = JournalSurvey(self.replica, files, self.handles.origin.folder / "boot-id")
        if survey.is_due:
            log.warning("the machine was restarted: all journals are checked")
            self.lost_records = await survey.run()
        survey.remember()

    def _drop_deleted(self, applied: EntryOutcome, _entry: Entry) -> None:
        """Free the memory and descriptors of objects that no row references any more."""
        for object_id in applied.dropped:
            self.cache.invalidate(object_id)
            if self.handles.files is not None:
                self.handles.files.forget(object_id)

    async def close(self) -> None:
        """Close the readers, then all handles."""
        await self._layouts.close()
        await self.cache.close()
        await self.handles.close()


def origin_of(settings: BrokerSettings) -> LogLocation:
    """Return the location of the log for these settings."""
    return LogLocation(settings.data, settings.store, settings.cluster, settings.namespace)


def open_handles(settings: BrokerSettings, clock: Clock | None = None) -> Handles:
    """Open the cluster log and the store in the settings; create a missing data folder.

    Raises:
        ConfigError: a setting cannot be used, or two contradict each other.
        Unavailable: a dependency is unreachable.
    """
    origin = origin_of(settings)
    origin.check()
    if origin.is_local:
        origin.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Handles(origin, settings.durability, settings.prices, clock)


def replica_of(handles: Handles, clock: Clock) -> Replica:
    """Return a replica that starts from the snapshots in the store; it is not opened yet."""
    return Replica(handles.cluster_log, clock, partial(snapshots.load, handles.store))


async def check_store(handles: Handles) -> None:
    """Refuse a store that ignores preconditions, before anything depends on them.

    Raises:
        ConfigError: the store ignores them.
        Unavailable: the store is unreachable.
        Corrupt: the store holds a log that the cluster log does not know.
    """
    origin = handles.origin
    has_preconditions = store_traits(origin.store_url).has_preconditions
    if not has_preconditions and not origin.log_traits.checks_store:
        await probe(handles.store, name_of(origin.store))
    await check_not_lost(handles.cluster_log, handles.store)


async def claim_store(
    handles: Handles, replica: Replica, new_cluster_id: Callable[[], str]
) -> None:
    """Mark the store as owned by the replica's cluster; create the cluster if there is none.

    Raises:
        ConfigError: the store belongs to another cluster, whose objects have the same names.
        Unavailable: the store or the cluster log is unreachable.
    """
    if not replica.state.cluster_id:
        await _create_cluster(handles, replica, new_cluster_id)
    cluster_id = replica.state.cluster_id
    with suppress(Conflict):
        await handles.store.create(CLUSTER, [cluster_id.encode()])
    owner = await handles.owner()
    if owner != cluster_id:
        raise _foreign(owner, cluster_id)


async def _create_cluster(
    handles: Handles, replica: Replica, new_cluster_id: Callable[[], str]
) -> None:
    """Create the cluster, unless another process does so at the same time."""
    owner = await handles.owner()
    # Read the log after the store: a process writes the log before it claims the store.
    await replica.barrier()
    if replica.state.cluster_id:
        return
    if owner is not None:
        raise _foreign(owner, "no cluster yet")
    await replica.create_cluster(
        ClusterCreated(cluster_id=new_cluster_id(), feature_level=FEATURE_LEVEL)
    )


def _foreign(owner: str | None, cluster_id: str) -> ConfigError:
    return ConfigError(
        f"the store holds the log of cluster {owner}, but the cluster log is that of "
        f"{cluster_id}; if the cluster log was lost, run `rookery recover`, else name another "
        "store or --namespace"
    )


def _flush_settings(settings: BrokerSettings, traits: ClusterLogTraits) -> FlushSettings:
    inline = settings.inline_bytes
    if inline < 0:
        inline = MAX_PAYLOAD_BYTES if traits.is_as_durable_as_store else 0
    if not settings.store:
        return FlushSettings(inline_bytes=inline)
    return FlushSettings(
        inline, settings.upload_bytes, settings.uploads, settings.flush_interval_ms
    )
