"""The user settings of a proxy.

[proxy]                           one virtual cluster, given by flags or here
upstream = "kafka-1:9092,kafka-2:9092"
listen = "127.0.0.1:9092"

[proxy.clusters.orders]           or any number of them, each with a table
upstream = "10.0.0.5:9092"
listen = "127.0.0.1:9192"
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

from rookery.errors import ConfigError
from rookery.model.address import Address, parse_address, parse_addresses
from rookery.proxy.nodeports import PortRange

DEFAULT_LISTEN: Final = "127.0.0.1:9092"
# The ports after that of `listen`, where the range is not set.
_DEFAULT_PORTS: Final = 100


@dataclass(frozen=True, slots=True)
class VirtualClusterSettings:
    """The settings of one virtual cluster."""

    upstream: str = ""
    """Brokers of the upstream cluster, host:port and separated by commas."""
    listen: str = DEFAULT_LISTEN
    """The address where clients begin."""
    advertise: str = ""
    """The host name for clients, if it differs from the one listened on."""
    node_ports: str = ""
    """The ports of the upstream's brokers, such as 9093-9192; by default the 100 ports after that
    of `listen`."""

    filters: tuple[str, ...] = ()
    """The filters that requests pass, in order: names of [proxy.filter.NAME] tables, or types of
    filters that need no options."""

    def bootstrap(self) -> list[Address]:
        """Return the brokers to begin with.

        Raises:
            ConfigError: there is none, or one is not an address.
        """
        if not self.upstream:
            raise ConfigError("name a broker of the Kafka cluster, host:port", name="upstream")
        return parse_addresses(self.upstream, "upstream")

    @property
    def address(self) -> Address:
        """The address of the bootstrap port."""
        return parse_address(self.listen, "listen", lowest_port=0)

    def ports(self, bootstrap_port: int) -> PortRange:
        """Return the ports of brokers, where clients begin at a given port.

        Raises:
            ConfigError: it is not a range of ports, or there are none after that port.
        """
        if self.node_ports:
            return PortRange.parse(self.node_ports)
        last = min(bootstrap_port + _DEFAULT_PORTS, 65_535)
        if last == bootstrap_port:
            raise ConfigError("there are no ports after 65535; set a range", name="node_ports")
        return PortRange(bootstrap_port + 1, last)


@dataclass(frozen=True, slots=True)
class FilterSettings:
    """The settings of one filter."""

    type: str = ""
    """The kind of filter: one that Rookery has, or one of an installed package."""
    options: dict[str, Any] = field(default_factory=dict)
    """The options of that kind."""


@dataclass(frozen=True, slots=True)
class ProxySettings(VirtualClusterSettings):
    """The settings of one proxy process, or of several on a host that share its ports."""

    clusters: dict[str, VirtualClusterSettings] = field(default_factory=dict)
    """Virtual clusters by name, each a table [proxy.clusters.NAME]; they replace `upstream`."""
    filter: dict[str, FilterSettings] = field(default_factory=dict)
    """Filters by name, each a table [proxy.filter.NAME]."""
    workers: int = field(default=1, metadata={"min": 1, "max": 256})
    """The number of processes that share all ports. The node ids of the upstream must then differ
    modulo the number of `node_ports`."""
    is_shared: bool = field(default=False, metadata={"setting": False})
    """Whether other processes serve the same ports."""
    http_listen: str = "127.0.0.1:9654"
    """The HTTP address of metrics and health; empty for none. Workers use consecutive ports."""
    http_token_file: str = ""
    """A file with the token that HTTP requests need (Authorization: Bearer TOKEN)."""
    connect_timeout_ms: int = field(default=10_000, metadata={"min": 1})
    """How long a connection to a broker may take."""
    request_timeout_ms: int = field(default=300_000, metadata={"min": 1})
    """How long a broker may take for a response; clients give up and connect again earlier."""
    rebalance_timeout_ms: int = field(default=1_800_000, metadata={"min": 1})
    """The same for the requests that wait until all members of a group have joined."""
    filter_timeout_ms: int = field(default=10_000, metadata={"min": 1})
    """How long the filters of a request or response may wait together."""
    refresh_interval_ms: int = field(default=30_000, metadata={"min": 100})
    """How often the proxy asks the upstream for its brokers."""
    request_bytes: int = field(default=536_870_912, metadata={"min": 1_048_576})
    """Memory for unanswered requests of all clients together."""
    answer_bytes: int = field(default=268_435_456, metadata={"min": 1_048_576})
    """Memory for responses that clients have not read yet, of all clients together."""
    unread_timeout_ms: int = field(default=30_000, metadata={"min": 1})
    """How long a client can leave responses unread while that memory is exhausted."""
    max_connections: int = field(default=10_000, metadata={"min": 1})
    """The maximum number of client connections of each port."""
    drain_timeout_ms: int = field(default=10_000, metadata={"min": 0})
    """How long a stop waits for requests in flight."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level of messages in the log."""

    def virtual_clusters(self) -> dict[str, VirtualClusterSettings]:
        """Return the virtual clusters by name.

        Raises:
            ConfigError: both forms are given.
        """
        if not self.clusters:
            own = {each.name: getattr(self, each.name) for each in fields(VirtualClusterSettings)}
            return {"default": VirtualClusterSettings(**own)}
        if self.upstream:
            raise ConfigError(
                "is given beside [proxy.clusters] tables; move it into one of them",
                name="upstream",
            )
        return dict(self.clusters)

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> ProxySettings:
        """Return the settings that `dataclasses.asdict` gave."""
        clusters = {
            name: VirtualClusterSettings(**{**each, "filters": tuple(each["filters"])})
            for name, each in given["clusters"].items()
        }
        filters = {name: FilterSettings(**each) for name, each in given["filter"].items()}
        tables = {"clusters": clusters, "filter": filters, "filters": tuple(given["filters"])}
        return cls(**{**given, **tables})
