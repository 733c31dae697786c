"""Opens the store, cluster log and journals of a log without a broker; creates nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from rookery.broker.settings import BrokerSettings
from rookery.broker.storage.objectlog import origin_of
from rookery.cluster.open import open_log
from rookery.log.check.sources import Sources
from rookery.log.origin import LogLocation
from rookery.log.read.files import JournalFiles
from rookery.store.open import open_store
from rookery.store.wrappers import NamespacedStore


@asynccontextmanager
async def open_sources(settings: BrokerSettings, *, with_log: bool) -> AsyncIterator[Sources]:
    """Open the cluster log, the store and the journals that settings name.

    Args:
        settings: those of the brokers.
        with_log: whether the cluster log must be there already.

    Raises:
        ConfigError: there is nothing where the settings point to.
        Unavailable: the store or the cluster log cannot be reached.
    """
    origin = origin_of(settings)
    origin.check_there(with_log=with_log)
    journals = _journals(origin)
    store = NamespacedStore(open_store(origin.store_url), origin.namespace)
    files = JournalFiles(journals) if journals else None
    cluster_log = None
    try:
        cluster_log = open_log(origin.cluster_url, durability=settings.durability)
        yield Sources(cluster_log, store, files, settings.namespace, journals)
    finally:
        if cluster_log is not None:
            await cluster_log.close()
        if files is not None:
            await files.close()
        await store.close()


def _journals(origin: LogLocation) -> Path | None:
    """Return the folder of journal files of brokers on this host, None if they have none."""
    folder = origin.folder / "journal"
    return folder if origin.is_local and folder.is_dir() else None
