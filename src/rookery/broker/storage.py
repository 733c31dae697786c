"""Where a broker's log lies: in a folder of this host, or in an object store that all hosts share.

no store set   journal and SQLite in the data folder, objects in a store beneath it
a store set    nothing on this host: objects in that store, agreement in the cluster log
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import NamedTuple

from rookery.broker import configs
from rookery.broker.settings import BrokerSettings
from rookery.broker.topiccache import TopicCache
from rookery.clock import Clock
from rookery.cluster.entry import MAX_PAYLOAD_BYTES
from rookery.cluster.replica import Replica
from rookery.cluster.state.state import State
from rookery.errors import ConfigError, Conflict
from rookery.formats.keys import CLUSTER
from rookery.log import snapshots
from rookery.log.bins import ObjectBin
from rookery.log.cache import BlockCache
from rookery.log.caretaker import Caretaker
from rookery.log.compaction.compactor import Compactor
from rookery.log.journal import Journal
from rookery.log.lostlog import check_not_lost
from rookery.log.medium import FlushSettings, JournalMedium, Medium
from rookery.log.objects import EntryReader
from rookery.log.origin import Handles, Origin
from rookery.log.reader import Reader
from rookery.log.reclaim import Reclaimer
from rookery.log.retention import Retention
from rookery.log.rewriter import Rewriter
from rookery.log.segmentindex import Layouts
from rookery.log.settings import CacheSettings
from rookery.log.survey import BOOT_ID
from rookery.log.sweeper import Sweeper
from rookery.log.tail import Tail
from rookery.log.uploads import Numbers, Uploads
from rookery.service.periodic import PeriodicTasks
from rookery.store.open import name_of, store_traits
from rookery.store.pending import PendingCalls
from rookery.store.probe import probe


class Reading(NamedTuple):
    """What reads the log for clients, and the memory before it."""

    reader: Reader
    cache: BlockCache
    layouts: Layouts | None

    async def close(self) -> None:
        """Let go of what was read."""
        if self.layouts is not None:
            await self.layouts.close()
        await self.cache.close()


class Storage(Handles):
    """The open handles of a broker's process, and what works on them."""

    has_caretaker = True
    expires_offsets = True
    hidden: frozenset[int] = frozenset()
    """APIs that cannot be served, by key."""

    def __init__(self, settings: BrokerSettings) -> None:
        """Open what the settings name.

        Raises:
            ConfigError: a setting cannot be used, or two contradict each other.
            Unavailable: something is out of reach.
        """
        origin = origin_of(settings)
        origin.check()
        if origin.is_local:
            origin.folder.mkdir(parents=True, exist_ok=True)
        super().__init__(origin, settings.durability, settings.prices)
        self.is_local = origin.is_local
        self.node_id = settings.node_id
        """The broker's number; -1 takes one that is free."""
        self.folder = origin.folder
        self.journal_calls = PendingCalls(f"journal in {origin.folder}")
        self.dependencies = {"store": self.store_calls, "cluster log": self.log_calls}
        """The calls to what the broker depends on, by names for health and metrics."""
        if origin.is_local:
            self.dependencies["disk"] = self.journal_calls
        self.snapshot_entries = settings.snapshot_entries
        """Entries after which a snapshot is due: fewer where a restart needs a request for each."""
        if (entries := origin.log_traits.max_replay_entries) is not None:
            self.snapshot_entries = min(settings.snapshot_entries, entries)

    def replica(self, clock: Clock) -> Replica:
        """Return a copy of the state that follows the cluster log, not opened yet."""
        return Replica(self.cluster_log, clock, partial(snapshots.load, self.store))

    def reading(self, settings: BrokerSettings, replica: Replica, tail: Tail) -> Reading:
        """Return what reads the log."""
        places = self.places(lambda: replica.state)
        cache = BlockCache(places.read, CacheSettings(max_bytes=settings.cache_bytes), places.name)
        layouts = Layouts(places, cache.read)
        # Long runs of a local disk are read past the cache: the system keeps its pages.
        direct = places.read if self.is_local else None
        reader = Reader(self.cluster_log, cache, tail, direct, layouts)
        return Reading(reader, cache, layouts)

    def node_lock(self, cluster_id: str) -> tuple[Path | None, str]:
        """Return the file that brokers of this host lock, and this start of the host.

        All brokers of a data folder have the file in that folder. Brokers of a store have one in
        the host's folder for temporary files, which a file of another host can resemble.
        """
        if self.is_local:
            return self.folder / "nodes.lock", ""
        boot_id = BOOT_ID.read_text() if BOOT_ID.exists() else ""
        if not boot_id:
            return None, ""
        return Path(gettempdir()) / f"rookery-{cluster_id}.lock", boot_id

    async def begin(self, replica: Replica) -> None:
        """Do nothing more when the broker has joined."""

    def employ(self, tasks: PeriodicTasks, replica: Replica, clock: Clock) -> None:
        """Have nothing done beside what every broker does."""

    async def shorten_next_start(self, replica: Replica) -> None:
        """Write a snapshot if much had to be read: who is killed again must not read it again."""
        await snapshots.point(self.store, replica.opened_at)
        if replica.state.applied - replica.opened_at >= self.snapshot_entries:
            await snapshots.save(self.store, replica.state)

    async def agrees(self, replica: Replica, snapshot: int) -> bool:
        """Read a snapshot back, and compare it with what this process has applied."""
        await replica.barrier()
        return await snapshots.agrees(self.store, snapshot, replica.digest_at(snapshot))

    async def claim(self, cluster_id: str) -> None:
        """Mark the store as this cluster's.

        Raises:
            ConfigError: it is another's, whose objects have the same names as ours.
        """
        with suppress(Conflict):
            await self.store.create(CLUSTER, [cluster_id.encode()])
        found = await self.owner()
        if found != cluster_id:
            raise self.foreign(found, cluster_id)

    async def ask_store(self) -> None:
        """Make the smallest request, to find out whether the store answers."""
        await self.store.size(CLUSTER)

    async def check(self) -> None:
        """Refuse a store that does not keep its promises, before anything depends on it.

        Raises:
            ConfigError: it ignores the conditions of requests.
            Unavailable: it is out of reach.
            Corrupt: the store holds a log that the cluster log knows nothing of.
        """
        has_preconditions = store_traits(self.origin.store_url).has_preconditions
        if not has_preconditions and not self.origin.log_traits.checks_store:
            await probe(self.store, name_of(self.origin.store))
        await check_not_lost(self.cluster_log, self.store)

    @staticmethod
    def foreign(owner: str | None, cluster_id: str) -> ConfigError:
        """Return the error for a store whose owner is not the cluster of the cluster log."""
        return ConfigError(
            f"the store holds the log of cluster {owner}, but the cluster log is that of "
            f"{cluster_id or 'no cluster yet'}; if the cluster log was lost, run `rookery "
            "recover`, else name another store or --namespace"
        )

    def bin(self, state: Callable[[], State]) -> ObjectBin:
        """Return what finds and deletes objects."""
        return ObjectBin(self.journals, self.store, state, self.namespace)

    def medium(
        self, settings: BrokerSettings, replica: Replica, clock: Clock, numbers: Numbers
    ) -> Medium:
        """Return where an incarnation's flushes go: a journal of its own, or the store."""
        if not self.is_local:
            return Uploads(self.store, replica, clock, numbers)
        journal = Journal(
            self.folder / "journal", numbers.incarnation, settings.durability, clock=clock
        )
        reclaimer = Reclaimer(journal, replica, clock)
        return JournalMedium(journal, self.journal_calls, reclaimer)

    def caretaker(
        self,
        settings: BrokerSettings,
        replica: Replica,
        clock: Clock,
        next_id: Callable[[], int],
    ) -> Caretaker:
        """Return a caretaker that works on a replica, under the incarnation of its process."""
        read = EntryReader(self.cluster_log, self.places(lambda: replica.state).read).read
        care = replace(settings.care(), snapshot_entries=self.snapshot_entries)
        caretaker = Caretaker(replica, self.cluster_log, self.store, clock, care)
        topic_configs = TopicCache(configs.resolve).of
        caretaker.employ(
            Retention(replica, clock, lambda topic: topic_configs(replica.state, topic)),
            Sweeper(
                replica,
                self.bin(lambda: replica.state),
                clock,
                settings.delete_delay_ms,
                settings.orphan_interval_ms,
            ),
            Rewriter(
                replica=replica,
                read=read,
                store=self.store,
                clock=clock,
                next_id=next_id,
                namespace=self.namespace,
                settings=settings.rewrite,
                segment_ms=lambda topic: topic_configs(replica.state, topic).segment_ms,
            ),
            Compactor(
                replica=replica,
                read=read,
                store=self.store,
                clock=clock,
                next_id=next_id,
                limits=lambda topic: topic_configs(replica.state, topic),
                namespace=self.namespace,
                rewrite=settings.rewrite,
                settings=settings.compaction,
            ),
        )
        return caretaker

    def flush_settings(self, settings: BrokerSettings) -> FlushSettings:
        """Return how much is flushed together."""
        inline = settings.inline_bytes
        if inline < 0:
            is_durable = self.origin.log_traits.is_as_durable_as_store
            inline = MAX_PAYLOAD_BYTES if is_durable else 0
        if self.is_local:
            return FlushSettings(inline_bytes=inline)
        return FlushSettings(
            inline, settings.upload_bytes, settings.uploads, settings.flush_interval_ms
        )


def origin_of(settings: BrokerSettings) -> Origin:
    """Return where the log of brokers with these settings lies."""
    return Origin(settings.data, settings.store, settings.cluster, settings.namespace)
