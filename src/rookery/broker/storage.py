"""Where a broker's log lies: in a folder of this host, or in an object store that all hosts share.

no store set   journal and SQLite in the data folder, objects in a store beneath it
a store set    nothing on this host: objects in that store, agreement in the cluster log
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from rookery.broker import configs
from rookery.broker.settings import BrokerSettings
from rookery.clock import Clock
from rookery.cluster.entry import MAX_PAYLOAD_BYTES
from rookery.cluster.open import open_log
from rookery.cluster.replica import Replica
from rookery.cluster.state.state import State
from rookery.errors import ConfigError
from rookery.formats.segmentkeys import check_namespace
from rookery.log.bins import ObjectBin
from rookery.log.caretaker import Caretaker
from rookery.log.files import Files
from rookery.log.journal import Journal
from rookery.log.medium import FlushSettings, JournalMedium, Medium
from rookery.log.objects import Places
from rookery.log.payloads import EntryReader
from rookery.log.retention import Retention
from rookery.log.rewriter import Rewriter
from rookery.log.settings import CacheSettings
from rookery.log.sweeper import Sweeper
from rookery.log.uploads import Numbers, Uploads
from rookery.store.counted import CountedStore
from rookery.store.open import name_of, open_store
from rookery.store.port import Store
from rookery.store.probe import probe

_LOCAL_BLOCK: Final = 1024 * 1024
_STORE_BLOCK: Final = 4 * 1024 * 1024


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
        self.store: Store = CountedStore(open_store(store_url(settings)), settings.prices)
        self.cluster_log = open_log(cluster_url(settings), durability=settings.durability)

    async def check(self) -> None:
        """Refuse a store that does not keep its promises, before anything depends on it.

        Raises:
            ConfigError: it ignores the conditions of requests.
            Unavailable: it is out of reach.
        """
        # The store's own log looks by itself, and the local one is our own code.
        if not self.is_local and not self._is_log_in_store:
            await probe(self.store, self._name)

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
        places = self.places(lambda: replica.state)
        caretaker = Caretaker(replica, self.cluster_log, self.store, clock, settings.care())
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
                read=EntryReader(self.cluster_log, places.read).read,
                store=self.store,
                clock=clock,
                next_id=next_id,
                namespace=self.namespace,
                settings=settings.rewrite,
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

    def cache_settings(self, settings: BrokerSettings) -> CacheSettings:
        """Return how much is read at once: a request to a store costs more than a seek."""
        block_bytes = _LOCAL_BLOCK if self.is_local else _STORE_BLOCK
        return CacheSettings(max_bytes=settings.cache_bytes, block_bytes=block_bytes)

    async def close(self) -> None:
        """Close all of it."""
        if self.files is not None:
            await self.files.close()
        await self.store.close()
        await self.cluster_log.close()


def store_url(settings: BrokerSettings) -> str:
    """Return the URL of the store."""
    return settings.store or f"file://{Path(settings.data).absolute() / 'store'}"


def cluster_url(settings: BrokerSettings) -> str:
    """Return the URL of the cluster log: of its own, or in the store, or in the folder."""
    if settings.cluster:
        return settings.cluster
    if settings.store:
        return f"store:{settings.store}"
    return f"sqlite://{Path(settings.data).absolute() / 'cluster.sqlite'}"
