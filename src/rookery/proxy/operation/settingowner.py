"""Adds the name of a virtual cluster to errors about its settings."""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from rookery.errors import ConfigError
from rookery.proxy.settings import ProxySettings, VirtualClusterSettings

_SETTINGS: Final = frozenset(each.name for each in fields(VirtualClusterSettings))


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
            name, reason = error.name, error.reason
            if not name and reason.partition(": ")[0] in _SETTINGS:
                name, _, reason = reason.partition(": ")
            raise ConfigError(reason, name=(self._prefix + name).rstrip(".")) from error
