"""Checks that the listeners of a proxy do not take each other's ports."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Final, NamedTuple

from rookery.errors import ConfigError
from rookery.model.address import Address
from rookery.proxy.nodeports import PortRange
from rookery.proxy.operation.settingowner import ListenerOwner, SettingOwner
from rookery.proxy.settings import (
    ClusterListenerSettings,
    ProxySettings,
    VirtualClusterSettings,
)

_EVERY_HOST: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 (only compared)


class PortClaim(NamedTuple):
    """Ports that a listener takes: the first one, or those of brokers."""

    listener: str
    host: str
    ports: PortRange

    def overlaps(self, other: PortClaim) -> bool:
        """Return whether both cannot be listened on."""
        hosts = {self.host, other.host}
        has_common_ports = (
            self.ports.first <= other.ports.last and other.ports.first <= self.ports.last
        )
        return has_common_ports and (len(hosts) == 1 or not hosts.isdisjoint(_EVERY_HOST))


def check_addresses(settings: ProxySettings) -> None:
    """Refuse two listeners with one address, and a virtual cluster whose listeners share ports.

    Raises:
        ConfigError: there are such listeners, or an address cannot be used.
    """
    owner: dict[Address, str] = {}
    for name, cluster in settings.virtual_clusters().items():
        with SettingOwner(settings, name):
            for listener, config in cluster.client_listeners().items():
                label = f"{name}.{listener}" if cluster.listeners else name
                with ListenerOwner(cluster, listener):
                    _check_address(config.address, label, owner)
            _check_ranges(cluster)


def _check_address(address: Address, label: str, owner: dict[Address, str]) -> None:
    other = owner.setdefault(address, label) if address.port else label
    if other != label:
        raise ConfigError(
            f"{address.text} belongs to the listener of {other}; set another port", name="listen"
        )


def _check_ranges(cluster: VirtualClusterSettings) -> None:
    """Refuse ports that two listeners of a virtual cluster would take.

    A range that is not set begins after the port of `listen`, where another listener may be.
    """
    claims = [
        claim
        for name, config in cluster.client_listeners().items()
        for claim in _claims(cluster, name, config)
    ]
    for earlier, later in combinations(claims, 2):
        if earlier.listener != later.listener and earlier.overlaps(later):
            with ListenerOwner(cluster, later.listener):
                raise ConfigError(
                    f"its ports {later.ports.text} meet {earlier.ports.text} of the listener "
                    f"{earlier.listener}; set ranges that do not overlap",
                    name="node_ports",
                )


def _claims(
    cluster: VirtualClusterSettings, name: str, config: ClusterListenerSettings
) -> Iterator[PortClaim]:
    host, port = config.address
    if port:
        yield PortClaim(name, host, PortRange(port, port))
    # Without a range, the ports follow one that the system has not chosen yet.
    is_known = port or config.node_ports
    if cluster.nodes == "mirror" and not config.node_names and is_known:
        with ListenerOwner(cluster, name):
            ports = config.ports(port)
        yield PortClaim(name, host, ports)
