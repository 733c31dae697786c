"""Adds the name of a virtual cluster, or of its listener, to errors about settings."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import Final

from rookery.errors import ConfigError
from rookery.proxy.settings import (
    ClusterListenerSettings,
    ProxySettings,
    VirtualClusterSettings,
)

_OF_CLUSTER: Final = frozenset(each.name for each in fields(VirtualClusterSettings))
_OF_LISTENER: Final = frozenset(each.name for each in fields(ClusterListenerSettings))


class SettingOwner:
    """A context whose errors concern the settings of one virtual cluster."""

    def __init__(self, settings: ProxySettings, name: str) -> None:
        """Prepare the context.

        Args:
            settings: the settings of the proxy.
            name: the name of the virtual cluster.
        """
        # Without tables, the settings of the only cluster are those of the proxy.
        self._prefix = f"clusters.{name}." if settings.clusters else ""

    def __enter__(self) -> None:
        """Do nothing yet."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Name the virtual cluster in an error.

        Raises:
            ConfigError: instead of another one, with the virtual cluster in its `name`.
        """
        if isinstance(error, ConfigError) and self._prefix:
            name, reason = _setting_of(error, _OF_CLUSTER)
            raise ConfigError(reason, name=(self._prefix + name).rstrip(".")) from error


class ListenerOwner:
    """A context whose errors concern the settings of one listener, within those of its cluster."""

    def __init__(self, settings: VirtualClusterSettings, name: str) -> None:
        """Prepare the context.

        Args:
            settings: the settings of the virtual cluster.
            name: the name of the listener.
        """
        # Without tables, the settings of the only listener are those of the cluster.
        self._prefix = f"listeners.{name}." if settings.listeners else ""

    def __enter__(self) -> None:
        """Do nothing yet."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Name the listener in an error about one of its settings.

        Raises:
            ConfigError: instead of another one, with the listener in its `name`.
        """
        if isinstance(error, ConfigError) and self._prefix:
            name, reason = _setting_of(error, _OF_LISTENER)
            if name in _OF_LISTENER:
                raise ConfigError(reason, name=self._prefix + name) from error


def _setting_of(error: ConfigError, known: Collection[str]) -> tuple[str, str]:
    """Return the setting that an error names, also at the start of its reason, and the reason."""
    name, reason = error.name, error.reason
    if not name and reason.partition(": ")[0] in known:
        name, _, reason = reason.partition(": ")
    return name, reason
