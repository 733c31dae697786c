"""The broker nodes of one virtual cluster: their configuration, and the links of clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from rookery.clock import Clock, Random
from rookery.errors import ConfigError
from rookery.model.address import Address
from rookery.net.connection import Connection
from rookery.net.upstream import Upstream
from rookery.proxy.nodes.directory import NodeDirectory
from rookery.proxy.nodes.instances import InstanceList, parse_instances
from rookery.proxy.nodes.nodelink import NodeLink, NodeTarget
from rookery.proxy.nodes.nodeversions import NodeVersions
from rookery.proxy.nodes.nodeview import NodeView
from rookery.proxy.nodes.presence import InstanceProbe
from rookery.proxy.nodes.topology import NO_BROKER
from rookery.proxy.operation.settingowner import ListenerOwner
from rookery.proxy.passage import PassageTable
from rookery.proxy.settings import (
    ClusterListenerSettings,
    ProxySettings,
    VirtualClusterSettings,
)
from rookery.proxy.virtual.apirules import HIDDEN_FEATURES
from rookery.proxy.virtual.rules import VirtualRules
from rookery.proxy.virtual.virtualtopics import VirtualTopics
from rookery.wire.messages.metadata import MetadataResponse

REFRESH_INTERVAL_MS: Final = 5_000
"""How often the upstream is asked for its brokers: a silent one holds up the clients that need it,
until the upstream does not list it any more."""


class BrokerNodes:
    """The instances as the nodes of a cluster."""

    def __init__(
        self,
        settings: VirtualClusterSettings,
        limits: ProxySettings,
        passages: PassageTable,
        connect: tuple[
            Callable[[Address], Awaitable[Upstream]], Callable[[int | None], Awaitable[Upstream]]
        ],
        clock: Clock,
        random: Random,
    ) -> None:
        """Prepare the nodes.

        Args:
            settings: the settings of the virtual cluster.
            limits: the settings that all clusters of the process share.
            passages: the APIs and versions that the proxy forwards.
            connect: connects to a broker by its address, and to any of them.
            clock: times sessions and the age of topology.
            random: numbers fetch sessions.

        Raises:
            ConfigError: a setting cannot be used.
        """
        self._listeners = settings.client_listeners()
        self._instances = read_instances(settings)
        self.directory = NodeDirectory(
            next(iter(self._instances.values())),
            connect[0],
            lambda: connect[1](None),
            clock,
            random,
        )
        self.versions = NodeVersions(self._open, passages, limits, clock, self.directory.topology)
        self.views = {
            name: NodeView(instances, self.directory.name_of)
            for name, instances in self._instances.items()
        }
        """What clients see, by the name of their listener."""
        self.virtual_topics: VirtualTopics | None = None
        """The topics with virtual partitions, if there can be any."""
        if settings.virtual:
            rules = VirtualRules(settings.virtual)
            self.virtual_topics = VirtualTopics(rules, self.directory, clock)
            self.versions.hidden_features = HIDDEN_FEATURES
        self.probe = InstanceProbe([*self._instances.values()])
        """Finds out which of the other instances are away."""

    def addresses_at(self, listener: str) -> dict[int, Address]:
        """Return the address of each instance that a listener advertises."""
        return dict(self._instances[listener].addresses)

    def begin(self, listener: str, address: Address) -> None:
        """Advertise this instance at the address of a listener, unless its instances are listed."""
        if not self._listeners[listener].instances:
            self._instances[listener].set_own_address(address)

    def learn(self, response: MetadataResponse) -> None:
        """Set the upstream's brokers."""
        self.directory.learn_metadata(response)

    def open_link(self, connection: Connection, target: NodeTarget, view: NodeView) -> NodeLink:
        """Return the link of a new client."""
        return NodeLink(
            connection, target, self.directory, self.versions, view, self.virtual_topics
        )

    def close(self) -> None:
        """Close the parts that are not closed with a client's link."""
        if self.virtual_topics is not None:
            self.virtual_topics.close()

    async def _open(self, node_id: int | None) -> Upstream:
        return await self.directory.open(NO_BROKER if node_id is None else node_id)


def read_instances(settings: VirtualClusterSettings) -> dict[str, InstanceList]:
    """Return the instances by listener; without a list, this one alone.

    Raises:
        ConfigError: settings contradict each other.
    """
    lists: dict[str, InstanceList] = {}
    for name, config in settings.client_listeners().items():
        with ListenerOwner(settings, name):
            lists[name] = _instances_at(config, settings.node_id)
            first = next(iter(lists.values()))
            if lists[name].addresses.keys() != first.addresses.keys():
                raise ConfigError(
                    f"{sorted(lists[name].addresses)} must be the node ids that the other "
                    f"listeners have: {sorted(first.addresses)}",
                    name="instances",
                )
    return lists


def _instances_at(config: ClusterListenerSettings, node_id: int) -> InstanceList:
    for name in ("node_names", "node_ports"):
        if getattr(config, name):
            raise ConfigError(
                'is for `nodes = "mirror"`; list the addresses of the proxy in `instances`',
                name=name,
            )
    instances = parse_instances(config.instances)
    if not instances:
        # The port is not known yet.
        instances = {node_id: config.address}
    if node_id not in instances:
        raise ConfigError(
            f"{node_id} is not among the `instances` {sorted(instances)}; add its address",
            name="node_id",
        )
    return InstanceList(node_id, instances)
