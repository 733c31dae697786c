"""Where a broker's log lies: in a folder of this host, or in an object store that all hosts share.

no store set   journal and SQLite in the data folder, objects in a store beneath it
a store set    nothing on this host: objects in that store, agreement in the cluster log
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from rookery.broker import configs
from rookery.broker.settings import BrokerSettings
from rookery.clock import Clock
from rookery.cluster.entry import MAX_PAYLOAD_BYTES
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.cluster.state.state import State
from rookery.errors import ConfigError, Conflict
from rookery.formats.keys import CLUSTER
from rookery.formats.segmentkeys import check_namespace
from rookery.log.bins import ObjectBin
from rookery.log.caretaker import Caretaker
from rookery.log.compaction.compactor import Compactor
from rookery.log.files import Files
from rookery.log.journal import Journal
from rookery.log.medium import FlushSettings, JournalMedium, Medium
from rookery.log.objects import Places
from rookery.log.payloads import EntryReader
from rookery.log.retention import Retention
from rookery.log.rewriter import Rewriter
from rookery.log.sweeper import Sweeper
from rookery.log.uploads import Numbers, Uploads
from rookery.store.counted import CountedStore
from rookery.store.namespaced import NamespacedStore
from rookery.store.open import name_of, open_store
from rookery.store.port import Store
from rookery.store.probe import probe

_STORE_ENTRIES: Final = 1_000


class Storage:
    """The open handles of one process: cluster log, store and, if there is a folder, journals."""

    def __init__(self, settings: BrokerSettings) -> None:
        """Open what the settings name.

        Raises:
            ConfigError: a setting cannot be used, or two contradict each other.
            Unavailable: something is out of reach.
        """
        check_namespace(settings.namespace)
        self.namespace = settings.namespace
        self.is_local = not settings.store
        self.folder = Path(settings.data).absolute()
        self.files: Files | None = None
        if self.is_local:
            if settings.cluster:
                raise ConfigError(
                    f"cluster {settings.cluster!r} without a store: brokers that agree there need "
                    "a place for the log that all of them reach; name it with --store"
                )
            self.folder.mkdir(parents=True, exist_ok=True)
            self.files = Files(self.folder / "journal")
        self._name = name_of(settings.store)
        self._is_log_in_store = cluster_url(settings).startswith("store:")
        self.snapshot_entries = settings.snapshot_entries
        """Entries after which a snapshot is due: fewer where a restart needs a request for each."""
        if self._is_log_in_store:
            self.snapshot_entries = min(settings.snapshot_entries, _STORE_ENTRIES)
        inner = NamespacedStore(open_store(store_url(settings)), settings.namespace)
        self.store: Store = CountedStore(inner, settings.prices)
        self.cluster_log = open_log(cluster_url(settings), durability=settings.durability)

    async def owner(self) -> str | None:
        """Return the id of the cluster whose log lies in the store; None if it is nobody's yet."""
        size = await self.store.size(CLUSTER)
        return (await self.store.read(CLUSTER)).decode() if size is not None else None

    async def claim(self, cluster_id: str) -> None:
        """Mark the store as this cluster's.

        Raises:
            ConfigError: it is another's, whose objects have the same names as ours.
        """
        with suppress(Conflict):
            await self.store.create(CLUSTER, [cluster_id.encode()])
        found = await self.owner()
        if found != cluster_id:
            raise ConfigError(_foreign(found, cluster_id))

    async def check(self) -> None:
        """Refuse a store that does not keep its promises, before anything depends on it.

        Raises:
            ConfigError: it ignores the conditions of requests.
            Unavailable: it is out of reach.
        """
        # The store's own log looks by itself, and the local one is our own code.
        if not self.is_local and not self._is_log_in_store:
            await probe(self.store, self._name)

    async def check_new(self) -> None:
        """Refuse to begin a new cluster over the log of another, which may have lost its own.

        Raises:
            ConfigError: the store is somebody's.
        """
        found = await self.owner()
        if found is not None:
            raise ConfigError(_foreign(found, ""))

    def places(self, state: Callable[[], State]) -> Places:
        """Return what reads bytes of any object."""
        return Places(self.files, self.store, state, self.namespace)

    def bin(self, state: Callable[[], State]) -> ObjectBin:
        """Return what finds and deletes objects."""
        folder = self.folder / "journal" if self.is_local else None
        return ObjectBin(folder, self.store, state, self.namespace)

    def medium(
        self, settings: BrokerSettings, replica: Replica, clock: Clock, numbers: Numbers
    ) -> Medium:
        """Return where an incarnation's flushes go: a journal of its own, or the store."""
        if not self.is_local:
            return Uploads(self.store, replica, clock, numbers)
        journal = Journal(
            self.folder / "journal", numbers.incarnation, settings.durability, clock=clock
        )
        return JournalMedium(journal)

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
        caretaker.employ(
            Retention(replica, clock, lambda topic: configs.of(replica.state, topic)),
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
            ),
            Compactor(
                replica=replica,
                read=read,
                store=self.store,
                clock=clock,
                next_id=next_id,
                limits=lambda topic: configs.of(replica.state, topic),
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
            # What lies in etcd alone would be gone with it.
            is_apart = cluster_url(settings).partition(":")[0] not in {"sqlite", "store", "memory"}
            inline = 0 if is_apart else MAX_PAYLOAD_BYTES
        if self.is_local:
            return FlushSettings(inline_bytes=inline)
        return FlushSettings(
            inline, settings.upload_bytes, settings.uploads, settings.flush_interval_ms
        )

    async def close(self) -> None:
        """Close all of it."""
        if self.files is not None:
            await self.files.close()
        await self.store.close()
        await self.cluster_log.close()


def _foreign(found: str | None, cluster_id: str) -> str:
    return (
        f"the store holds the log of cluster {found}, but the cluster log is that of "
        f"{cluster_id or 'no cluster yet'}; if the cluster log was lost, run `rookery recover`, "
        "else name another store or --namespace"
    )


def store_url(settings: BrokerSettings) -> str:
    """Return the URL of the store."""
    return settings.store or f"file://{Path(settings.data).absolute() / 'store'}"


def cluster_url(settings: BrokerSettings) -> str:
    """Return the URL of the cluster log: of its own, or in the store, or in the folder."""
    if settings.cluster:
        return settings.cluster
    if settings.store:
        mark = "&" if "?" in settings.store else "?"
        return f"store:{settings.store}{mark}namespace={settings.namespace}"
    return f"sqlite://{Path(settings.data).absolute() / 'cluster.sqlite'}"
