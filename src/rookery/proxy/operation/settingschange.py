"""What differs between the settings of a running proxy and those of a changed file.

A setting belongs to one of four groups: those of virtual clusters, the limits that all virtual
clusters have in common, those that need a restart, and those that apply at once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final

from rookery.proxy.operation.addresscheck import check_addresses
from rookery.proxy.settings import FilterSettings, ProxySettings, VirtualClusterSettings

NEED_RESTART: Final = frozenset(
    {
        "answer_bytes",
        "drain_timeout_ms",
        "http_listen",
        "http_token_file",
        "is_shared",
        "request_bytes",
        "unread_timeout_ms",
        "workers",
    }
)
"""Settings that the process reads at its start only."""
OF_ALL_CLUSTERS: Final = frozenset(
    {
        "connect_timeout_ms",
        "filter_timeout_ms",
        "max_connections",
        "rebalance_timeout_ms",
        "refresh_interval_ms",
        "request_timeout_ms",
    }
)
"""Limits of every virtual cluster: a change of one is a change of all clusters."""
AT_ONCE: Final = frozenset({"insecure", "log_level"})
"""Settings that apply without a change of virtual clusters."""


@dataclass(frozen=True, slots=True)
class SettingsChange:
    """The difference between two settings of a proxy, by names of virtual clusters."""

    settings: ProxySettings
    """The settings in effect after the change: those that need a restart have their old values."""
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    need_restart: tuple[str, ...]
    """Settings that have changed and need a restart."""

    @property
    def opened(self) -> tuple[str, ...]:
        """The virtual clusters that are created."""
        return self.added + self.changed

    @property
    def closed(self) -> tuple[str, ...]:
        """The virtual clusters whose connections are drained."""
        return self.changed + self.removed


def compare(
    old: ProxySettings, new: ProxySettings, touched: Collection[str] = ()
) -> SettingsChange:
    """Return how the settings differ.

    Args:
        old: the settings in effect.
        new: the changed settings.
        touched: the virtual clusters whose files have other contents, under unchanged names.

    Raises:
        ConfigError: the new settings cannot be used.
    """
    before, after = old.virtual_clusters(), new.virtual_clusters()
    check_addresses(new)
    common = [name for name in after if name in before]
    has_new_limits = any(getattr(old, name) != getattr(new, name) for name in OF_ALL_CLUSTERS)
    kept: dict[str, Any] = {name: getattr(old, name) for name in NEED_RESTART}
    return SettingsChange(
        settings=replace(new, **kept),
        added=tuple(name for name in after if name not in before),
        changed=tuple(
            name
            for name in common
            if has_new_limits
            or name in touched
            or before[name] != after[name]
            or _filters(old, before[name]) != _filters(new, after[name])
        ),
        removed=tuple(name for name in before if name not in after),
        need_restart=tuple(
            name for name in sorted(NEED_RESTART) if getattr(old, name) != getattr(new, name)
        ),
    )


def _filters(
    settings: ProxySettings, cluster: VirtualClusterSettings
) -> list[FilterSettings | None]:
    return [settings.filter.get(name) for name in cluster.filters]
