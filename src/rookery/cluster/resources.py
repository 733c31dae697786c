"""Resources that have settings: their types, and their names in events and in the state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32
_PREFIXES: Final = {CLIENT_METRICS_RESOURCE: "client metrics ", GROUP_RESOURCE: "group "}


def resource_key(resource_type: int, name: str) -> str:
    """Return the name of a resource in events that change its settings.

    Settings of groups and client metrics are stored with those of brokers, under a prefix. `apply`
    has no special rule for them, so programs of any level can store them.
    """
    return _PREFIXES.get(resource_type, "") + name


def resource_name(resource_type: int, key: str) -> str:
    """Return the name of the resource that has this key."""
    return key.removeprefix(_PREFIXES.get(resource_type, ""))


def list_configured(configs: Mapping[str, Mapping[str, str]], resource_type: int) -> list[str]:
    """Return the groups, or the client metrics, that have settings."""
    prefix = _PREFIXES[resource_type]
    return sorted(
        resource_name(resource_type, key)
        for key, values in configs.items()
        if values and key.startswith(prefix)
    )
