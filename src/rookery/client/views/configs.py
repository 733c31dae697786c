"""Configs of topics, brokers and groups, with the source of each value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rookery.client.client import Client
from rookery.client.configs import ConfigEntry, ResourceType

# The numbers are those of DescribeConfigs, the names those of Kafka's own tools.
_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}


@dataclass(frozen=True, slots=True)
class ConfigOverview:
    """The effective value of a config."""

    name: str
    value: str | None
    """None if it is sensitive."""
    source: str
    """Kafka's name, such as DEFAULT_CONFIG; UNKNOWN if the broker does not report it."""
    is_own: bool
    """Whether it was set at run time, rather than being a default."""
    is_read_only: bool
    is_sensitive: bool


async def describe_configs(
    client: Client, kind: ResourceType, name: str
) -> tuple[ConfigOverview, ...]:
    """Return the configs of a topic, a broker (its id as text) or a group, sorted by name.

    Raises:
        ApiError: the resource does not exist.
    """
    entries = await client.admin.configs.describe(kind, name)
    return tuple(_overview(entries[key]) for key in sorted(entries))


def _overview(entry: ConfigEntry) -> ConfigOverview:
    return ConfigOverview(
        name=entry.name,
        value=entry.value,
        source=_SOURCES.get(entry.source, "UNKNOWN"),
        is_own=entry.is_own,
        is_read_only=entry.is_read_only,
        is_sensitive=entry.is_sensitive,
    )
