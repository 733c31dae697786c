"""Opens what a log is made of, without a broker, and without making what is not there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rookery.broker.settings import BrokerSettings
from rookery.broker.storage import cluster_url, store_url
from rookery.cluster.open import open_log
from rookery.errors import ConfigError
from rookery.formats.segmentkeys import check_namespace
from rookery.log.files import Files
from rookery.log.fsck.sources import Sources
from rookery.store.namespaced import NamespacedStore
from rookery.store.open import open_store


@asynccontextmanager
async def opened(settings: BrokerSettings, *, with_log: bool) -> AsyncIterator[Sources]:
    """Open the cluster log, the store and the journals that settings name.

    Args:
        settings: those of the brokers.
        with_log: whether the cluster log must be there already.

    Raises:
        ConfigError: there is nothing where the settings point to.
        Unavailable: something is out of reach.
    """
    check_namespace(settings.namespace)
    journals = _journals(settings, with_log=with_log)
    _check_folder(store_url(settings), is_optional=not settings.store)
    store = NamespacedStore(open_store(store_url(settings)), settings.namespace)
    files = Files(journals) if journals else None
    cluster_log = None
    try:
        cluster_log = open_log(cluster_url(settings), durability=settings.durability)
        yield Sources(cluster_log, store, files, settings.namespace, journals)
    finally:
        if cluster_log is not None:
            await cluster_log.close()
        if files is not None:
            await files.close()
        await store.close()


def _journals(settings: BrokerSettings, *, with_log: bool) -> Path | None:
    """Return the folder of journal files of brokers on this host, None if they have none."""
    if settings.store:
        return None
    folder = Path(settings.data).absolute()
    if not folder.is_dir():
        raise ConfigError(f"data: there is no folder {folder}; name it with --data, or a --store")
    if with_log and not (folder / "cluster.sqlite").exists():
        raise ConfigError(
            f"data: the folder {folder} has no cluster log (cluster.sqlite); if it was lost, stop "
            "the brokers and run `rookery recover`"
        )
    return folder / "journal" if (folder / "journal").is_dir() else None


def _check_folder(url: str, *, is_optional: bool) -> None:
    """Refuse a store in a folder that is not there: it would be made, and found empty."""
    parts = urlsplit(url)
    if parts.scheme == "file" and not is_optional and not Path(unquote(parts.path)).is_dir():
        raise ConfigError(f"store {url!r}: there is no such folder")
