"""The user settings of a proxy.

[proxy]                           one virtual cluster, given by flags or here
upstream = "kafka-1:9092,kafka-2:9092"
listen = "127.0.0.1:9092"

[proxy.clusters.orders]           or any number of them, each with a table
upstream = "10.0.0.5:9092"
listen = "sasl_ssl://0.0.0.0:9192"
users_file = "users.toml"

[proxy.clusters.orders.security]  how clients are served: certificates and logins
[proxy.clusters.orders.upstream_security]    the same towards the brokers

[proxy.clusters.orders.listeners.internal]    several addresses for clients, each with a table;
listen = "127.0.0.1:9092"                     they replace `listen`
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal, Self

from rookery.errors import ConfigError
from rookery.model.address import Address, parse_addresses
from rookery.proxy.nodeports import PortRange
from rookery.service.listen.listenersettings import ListenerConfig, ListenerSecurity

DEFAULT_LISTEN: Final = "127.0.0.1:9092"
# The ports after that of `listen`, where the range is not set.
_DEFAULT_PORTS: Final = 100
# If they were ignored next to tables of clusters, a cluster could be less protected than it seems.
_OF_ONE_CLUSTER: Final = (
    *("upstream", "listeners", "node_names", "nodes", "instances", "node_id", "users_file"),
    *("virtual", "security", "upstream_security"),
)
_OF_ONE_LISTENER: Final = ("listen", "advertise", "node_ports", "node_names", "instances")
"""The settings of a virtual cluster that are those of its only listener."""


@dataclass(frozen=True, slots=True)
class UpstreamSecurity:
    """How the proxy connects to the brokers of an upstream."""

    tls: bool = False
    """Whether connections are encrypted. A broker's certificate must be for the host name under
    which the broker is listed or advertised."""
    ca_file: str = ""
    """Authorities of the brokers' certificates (PEM); by default those of the system."""
    certificate_file: str = ""
    """The proxy's certificate and those that lead to its authority (PEM), if brokers want one."""
    key_file: str = ""
    """The private key; empty if it is in the certificate file."""
    key_password: str = field(default="", metadata={"secret": True}, repr=False)
    """The password of the key, if it is encrypted."""
    mechanism: str = ""
    """The SASL mechanism with which the proxy logs in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or
    OAUTHBEARER. If it is empty and `listen` has no SASL, the logins of clients are passed on."""
    username: str = ""
    """The user as whom the proxy logs in, for all clients."""
    password: str = field(default="", metadata={"secret": True}, repr=False)
    """The password of that user; PLAIN sends it unencrypted, so use TLS."""
    password_file: str = ""
    """A file with the password instead; its mode must be 0600."""
    token_file: str = ""
    """A file with the token for OAUTHBEARER, mode 0600; each login reads it again."""


@dataclass(frozen=True, slots=True)
class ClusterListenerSettings(ListenerConfig):
    """The settings of one listener; security that is not set is that of the virtual cluster."""

    advertise: str = ""
    """The host name for clients, if it differs from the one listened on."""
    node_ports: str = ""
    """The ports of the upstream's brokers, such as 9093-9192; by default the 100 ports after that
    of `listen`."""
    node_names: str = ""
    """The names of the upstream's brokers for a listener with TLS, instead of ports for them."""
    instances: str = ""
    """With `nodes = "proxy"`: the addresses of the instances for clients of this listener, by node
    id."""

    def choose_address(self, port: int) -> Address:
        """Return the address for clients of a port: the first one, or that of a broker."""
        return Address(self.advertise or self.address.host, port)

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
class VirtualClusterSettings:
    """The settings of one virtual cluster."""

    upstream: str = ""
    """Brokers of the upstream cluster, host:port and separated by commas."""
    listen: str = DEFAULT_LISTEN
    """The address that clients connect to first. A security protocol can precede it:
    sasl_ssl://0.0.0.0:9092. A port alone, as in :9092, is of 127.0.0.1."""
    advertise: str = ""
    """The host name for clients, if it differs from the one listened on."""
    node_ports: str = ""
    """The ports of the upstream's brokers, such as 9093-9192; by default the 100 ports after that
    of `listen`."""
    node_names: str = ""
    """The names of the upstream's brokers for a listener with TLS, instead of ports for them:
    broker-$(node_id).example.com. All resolve to the proxy and have the port of `listen`."""
    nodes: Literal["mirror", "proxy"] = "mirror"
    """What clients see as brokers: `mirror` gives each broker of the upstream an address of the
    proxy; `proxy` shows the proxy's instances, which serve all partitions."""
    instances: str = ""
    """With `nodes = "proxy"`: the instances by node id, such as 1=proxy-1:9092,2=proxy-2:9092, the
    same for all. A single instance needs no list. Processes that share an address are one
    instance."""
    node_id: int = field(default=1, metadata={"min": 0})
    """With `nodes = "proxy"`: the node id of this instance."""
    virtual: dict[str, Any] = field(default_factory=dict)
    """With `nodes = "proxy"`: the topics that are shown with more partitions than they have. See
    docs/guide/virtual-partitions.md."""
    users_file: str = ""
    """A TOML file with the users who log in at the proxy, mode 0600: a table for each, with a
    password or with SCRAM credentials."""
    security: ListenerSecurity = field(default_factory=ListenerSecurity)
    """The certificate and the logins of `listen`, or of listeners that do not set their own."""
    listeners: dict[str, ClusterListenerSettings] = field(default_factory=dict)
    """Listeners by name, each a table [proxy.clusters.CLUSTER.listeners.NAME]; they replace
    `listen`, `advertise`, `node_ports`, `node_names` and `instances`."""
    upstream_security: UpstreamSecurity = field(default_factory=UpstreamSecurity)
    """How the proxy connects to the upstream."""
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

    def client_listeners(self) -> dict[str, ClusterListenerSettings]:
        """Return the listeners by name, complete; a single one has the name of its protocol.

        Raises:
            ConfigError: listeners are given in both forms, or a protocol does not exist.
        """
        if not self.listeners:
            own = {name: getattr(self, name) for name in _OF_ONE_LISTENER}
            only = ClusterListenerSettings(**own)
            return {only.protocol.name: only.over(self.security)}
        defaults = VirtualClusterSettings()
        for name in _OF_ONE_LISTENER:
            if getattr(self, name) != getattr(defaults, name):
                raise ConfigError(
                    "is given in addition to tables of listeners; move it into one of them",
                    name=name,
                )
        return {name: each.over(self.security) for name, each in self.listeners.items()}

    @property
    def address(self) -> Address:
        """The address that clients of the first listener connect to first."""
        return next(iter(self.client_listeners().values())).address

    def at(self, addresses: Mapping[str, Address]) -> Self:
        """Return the settings with other addresses to listen on, by the names of listeners."""
        listen = {
            name: each.at(addresses[name]).listen for name, each in self.client_listeners().items()
        }
        if not self.listeners:
            return replace(self, listen=next(iter(listen.values())))
        listeners = {
            name: replace(each, listen=listen[name]) for name, each in self.listeners.items()
        }
        return replace(self, listeners=listeners)


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
    insecure: bool = False
    """Allow other hosts to connect to listeners without authentication, and to HTTP without a
    token. Logins that pass through to the brokers do not count: the proxy does not check them."""
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
        defaults = VirtualClusterSettings()
        for name in _OF_ONE_CLUSTER:
            if getattr(self, name) != getattr(defaults, name):
                raise ConfigError(
                    "is given together with [proxy.clusters] tables; move it into one of them",
                    name=name,
                )
        return dict(self.clusters)

    def with_clusters(self, clusters: dict[str, VirtualClusterSettings]) -> ProxySettings:
        """Return the settings with tables of virtual clusters instead of its own one."""
        defaults = VirtualClusterSettings()
        own: dict[str, Any] = {
            name: getattr(defaults, name) for name in (*_OF_ONE_CLUSTER, "filters")
        }
        return replace(self, **own, clusters=clusters)

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> ProxySettings:
        """Return the settings that `dataclasses.asdict` gave."""
        clusters = {
            name: VirtualClusterSettings(**{**each, **_convert_nested(each)})
            for name, each in given["clusters"].items()
        }
        filters = {name: FilterSettings(**each) for name, each in given["filter"].items()}
        tables = {"clusters": clusters, "filter": filters}
        return cls(**{**given, **_convert_nested(given), **tables})


def _convert_nested(given: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a virtual cluster that JSON has in another form."""
    return {
        "filters": tuple(given["filters"]),
        "listeners": {
            name: ClusterListenerSettings(**each) for name, each in given["listeners"].items()
        },
        "security": ListenerSecurity(**given["security"]),
        "upstream_security": UpstreamSecurity(**given["upstream_security"]),
    }
