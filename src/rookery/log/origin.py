"""The location of a cluster's log, and the open handles on it.

no store set   journal and SQLite in the data folder, objects in a store beneath it
a store set    nothing on this host: objects in that store, agreement in the cluster log
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rookery.clock import Clock
from rookery.cluster.open import WatchedLog, log_traits, open_log
from rookery.cluster.port import ClusterLog, ClusterLogTraits, Durability
from rookery.cluster.state.state import State
from rookery.errors import ConfigError
from rookery.formats.keys import CLUSTER, check_namespace
from rookery.log.read.files import JournalFiles
from rookery.log.read.objects import Places
from rookery.model.location import Location
from rookery.store.open import as_url, name_of, open_store, store_traits
from rookery.store.pendingcalls import PendingCalls
from rookery.store.port import NotFound, Store
from rookery.store.prices import Prices
from rookery.store.wrappers import CountedStore, NamespacedStore


@dataclass(frozen=True, slots=True)
class LogLocation:
    """The names of a cluster's store and cluster log; secrets in them are never shown."""

    data: str = "rookery-data"
    """The folder of brokers on one host; not used with a store."""
    store: str = ""
    """The object store of the log, such as s3://bucket/prefix."""
    cluster: str = ""
    """The cluster log, such as etcd://host:2379; if empty, it is in the store itself."""
    namespace: str = "default"
    """The prefix of the keys of this cluster's segments."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "store", as_url(self.store))
        object.__setattr__(self, "cluster", Location(self.cluster))

    @property
    def is_local(self) -> bool:
        """Whether all data is in a folder of this host."""
        return not self.store

    @property
    def folder(self) -> Path:
        """The data folder."""
        return Path(self.data).absolute()

    @property
    def store_url(self) -> str:
        """The URL of the store."""
        return self.store or f"file://{self.folder / 'store'}"

    @property
    def cluster_url(self) -> str:
        """The URL of the cluster log: a separate one, or in the store, or in the folder."""
        if self.cluster:
            return self.cluster
        if self.store:
            mark = "&" if "?" in self.store else "?"
            store = Location(self.store).reveal()
            return Location(f"store:{store}{mark}namespace={self.namespace}")
        return f"sqlite://{self.folder / 'cluster.sqlite'}"

    @property
    def log_traits(self) -> ClusterLogTraits:
        """The traits of the cluster log."""
        return log_traits(self.cluster_url)

    @property
    def name(self) -> str:
        """The name for messages."""
        return f"folder {self.folder}" if self.is_local else f"store {name_of(self.store)}"

    def check(self) -> None:
        """Reject names that contradict each other.

        Raises:
            ConfigError: they do.
        """
        check_namespace(self.namespace)
        if self.is_local and self.cluster:
            raise ConfigError(
                f"cluster {self.cluster!r} without a store: brokers that agree there need "
                "a place for the log that all of them reach; name it with --store"
            )

    def check_there(self, *, with_log: bool) -> None:
        """Reject folders that do not exist: opening would create them empty.

        Args:
            with_log: whether the cluster log must already exist.

        Raises:
            ConfigError: the location does not exist.
        """
        self.check()
        if self.is_local:
            _check_data(self.folder, with_log=with_log)
            return
        folder = store_traits(self.store_url).path
        if folder is not None and not folder.is_dir():
            raise ConfigError(f"store {self.store_url!r}: there is no such folder")


def _check_data(folder: Path, *, with_log: bool) -> None:
    if not folder.is_dir():
        raise ConfigError(f"data: there is no folder {folder}; name it with --data, or a --store")
    if with_log and not (folder / "cluster.sqlite").exists():
        raise ConfigError(
            f"data: the folder {folder} has no cluster log (cluster.sqlite); if it was lost, stop "
            "the brokers and run `rookery recover`"
        )


class Handles:
    """The open handles of one process: cluster log, store and, if there is a folder, journals."""

    def __init__(
        self,
        origin: LogLocation,
        durability: Durability = "disk",
        prices: Prices | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Open everything that an origin names.

        Args:
            origin: the location of the log.
            durability: applies to a cluster log in a folder.
            prices: the prices of requests to the store; without them there are no cost metrics.
            clock: measures how long calls have had no answer.

        Raises:
            ConfigError: a name cannot be used.
            Unavailable: the store or the cluster log cannot be reached.
        """
        origin.check()
        self.origin = origin
        self.namespace = origin.namespace
        self.journals = origin.folder / "journal" if origin.is_local else None
        """Where journal files are; None if there are none."""
        self.files = JournalFiles(self.journals) if self.journals is not None else None
        inner = NamespacedStore(open_store(origin.store_url), origin.namespace)
        self.store_calls = PendingCalls(f"store {name_of(origin.store_url)}", clock)
        self.store: Store = CountedStore(inner, prices, self.store_calls)
        self.log_calls = PendingCalls(f"cluster log {name_of(origin.cluster_url)}", clock)
        opened = open_log(origin.cluster_url, durability=durability)
        self.cluster_log: ClusterLog = WatchedLog(opened, self.log_calls)

    async def owner(self) -> str | None:
        """Return the id of the cluster that owns the store; None if no cluster does yet."""
        try:
            return (await self.store.read(CLUSTER)).decode()
        except NotFound:
            return None

    def places(self, state: Callable[[], State]) -> Places:
        """Return a reader for the bytes of any object."""
        return Places(self.files, self.store, state, self.namespace)

    async def close(self) -> None:
        """Close all handles."""
        if self.files is not None:
            await self.files.close()
        await self.store.close()
        await self.cluster_log.close()
