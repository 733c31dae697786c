"""Options for the location of the log, for commands that need no broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rookery.cli.options.fields import option, repeated

if TYPE_CHECKING:
    from rookery.broker.settings import BrokerSettings
    from rookery.direct.place import ClusterAddress

STORAGE_TITLE: Final = "log"
STORAGE_HELP: Final = (
    "The same settings as for `rookery broker`, also from its configuration files."
)
_SETTINGS: Final = ("data", "store", "cluster", "namespace")


@dataclass(frozen=True, kw_only=True)
class LogAddress:
    """The broker's settings for the location of its log."""

    data: str | None = option(
        "--data",
        metavar="FOLDER",
        help="the data folder of brokers on this host (default: rookery-data)",
    )
    store: str | None = option(
        "--store",
        metavar="URL",
        help="the object store, such as s3://bucket/prefix or file:///srv/rookery",
    )
    cluster: str | None = option(
        "--cluster",
        metavar="URL",
        help="the cluster log, such as etcd://host:2379/name (default: in the store)",
    )
    namespace: str | None = option(
        "--namespace",
        metavar="NAME",
        help="the key prefix of the cluster's segments (default: default)",
    )
    config: tuple[str, ...] = repeated(
        "--config",
        metavar="FILE",
        help="a TOML file with the broker's settings; may be repeated",
    )

    @property
    def is_given(self) -> bool:
        """Whether any flag gives the location; a namespace alone does not."""
        return bool(self.config) or (self.data, self.store, self.cluster) != (None, None, None)

    def load_settings(self) -> BrokerSettings:
        """Return the broker's settings; a folder that is named wins over a configured store.

        Raises:
            ConfigError: a setting cannot be used.
        """
        from dataclasses import replace

        from rookery.broker.settings import BrokerSettings
        from rookery.config.load import config_files, load
        from rookery.config.schema import DEST_PREFIX
        from rookery.config.sections import sections

        flags = {DEST_PREFIX + name: getattr(self, name) for name in _SETTINGS}
        files = config_files(self.config)
        settings = load(BrokerSettings, "broker", flags, files=files, sections=sections()).settings
        if self.data is not None and self.store is None:
            return replace(settings, store="", cluster="")
        return settings


def place_of(settings: BrokerSettings) -> ClusterAddress:
    """Return the location of the log of brokers with these settings."""
    from rookery.direct.place import ClusterAddress

    if settings.cluster and ":" not in settings.cluster:
        return ClusterAddress(cluster=settings.cluster)
    if settings.store:
        return ClusterAddress(settings.store, settings.cluster, settings.namespace)
    return ClusterAddress(data=settings.data, namespace=settings.namespace)
