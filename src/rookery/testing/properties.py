"""The properties file of a Kafka server: ports, ids, users, certificates."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rookery.errors import ConfigError
from rookery.testing.certificates import Certificates
from rookery.testing.ports import HOST, free_port

PLAINTEXT, CONTROLLER = "PLAINTEXT", "CONTROLLER"
LISTENERS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD_MECHANISMS: Final = ("PLAIN", *SCRAM)
MECHANISMS: Final = (*PASSWORD_MECHANISMS, "OAUTHBEARER")

_MODULES: Final = "org.apache.kafka.common.security"
_COMMON: Final = {
    "process.roles": "broker,controller",
    "controller.listener.names": CONTROLLER,
    "num.partitions": "4",
    "auto.create.topics.enable": "true",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    "share.coordinator.state.topic.num.partitions": "5",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    # A killed broker is given up after this long, and cannot come back before. The default of
    # 9 s makes tests wait; much less, and a busy machine loses brokers that live.
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "6000",
    # Records of tests have fixed times, which are years old. Kafka's retention looks for them half
    # a minute after its start, and would delete them while a test reads them.
    "log.initial.task.delay.ms": "3600000",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS;User:admin",
}


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Settings that a test may choose for a server."""

    listeners: tuple[str, ...] = (PLAINTEXT,)
    """Any of `LISTENERS`; PLAINTEXT is there in any case."""

    users: Mapping[str, str] = field(default_factory=dict)
    """Passwords by name, known to PLAIN and SCRAM on the SASL listeners.

    OAUTHBEARER accepts any token that is not signed, which Kafka has for tests.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    """Kafka's own settings; they take precedence over ours."""

    heap_mb: int = 384
    """The most memory that a server's objects may take."""

    advertised_host: str = HOST
    """The host under which servers are known to clients and to each other; they listen on HOST."""

    def __post_init__(self) -> None:
        unknown = [name for name in self.listeners if name not in LISTENERS]
        if unknown:
            raise ConfigError(f"listeners: no such listener {unknown}; choose from {LISTENERS}")
        for word in (*self.users, *self.users.values()):
            # Kafka's login settings and format tool each have their own quoting; stay clear of it.
            if not word or not word.isprintable() or set(word) & set('"\\,[];='):
                raise ConfigError(f'users: {word!r} is empty or has one of " \\ , [ ] ; = in it')


@dataclass(frozen=True, slots=True)
class ServerNode:
    """One server of a cluster: its id, its ports, and the place of its files."""

    id: int
    folder: Path
    directory_id: str
    ports: Mapping[str, int]

    def address(self, listener: str = PLAINTEXT) -> str:
        """Return `host:port` of a listener."""
        return f"{HOST}:{self.ports[listener]}"

    @property
    def voter(self) -> str:
        """Return the node in the form of the format tool."""
        return f"{self.id}@{self.address(CONTROLLER)}:{self.directory_id}"


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """All servers of a cluster, before any of them runs."""

    settings: KafkaSettings
    cluster_id: str
    nodes: tuple[ServerNode, ...]
    certificates: Certificates | None

    @classmethod
    def make(cls, folder: Path, count: int, settings: KafkaSettings) -> ClusterPlan:
        """Choose ids and ports for that many servers, and write certificates if TLS is used."""
        names = dict.fromkeys((PLAINTEXT, *settings.listeners, CONTROLLER))
        nodes = tuple(
            ServerNode(
                number, folder / f"node-{number}", _uuid(), {name: free_port() for name in names}
            )
            for number in range(1, count + 1)
        )
        secure = any(name.endswith("SSL") for name in names)
        files = Certificates.make(folder / "tls", HOST, "localhost") if secure else None
        return cls(settings, _uuid(), nodes, files)

    def format_args(self, properties: Path) -> list[str]:
        """Return the arguments of `kafka-storage` that make a node's data folder."""
        args = ["format", "--cluster-id", self.cluster_id, "--config", str(properties)]
        args += ["--initial-controllers", ",".join(node.voter for node in self.nodes)]
        for name, password in self.settings.users.items():
            for mechanism in SCRAM:
                args += ["--add-scram", f'{mechanism}=[name="{name}",password="{password}"]']
        return args

    def properties(self, node: ServerNode) -> dict[str, str]:
        """Return the settings of a node under Kafka's names."""
        return {
            **_COMMON,
            **self._replication(),
            **self._place(node),
            **self._tls(),
            **self._sasl(node),
            **self.settings.properties,
        }

    def _place(self, node: ServerNode) -> dict[str, str]:
        ends = {name: f"{name}://{node.address(name)}" for name in node.ports}
        host = self.settings.advertised_host
        public = [f"{name}://{host}:{node.ports[name]}" for name in ends if name != CONTROLLER]
        protocols = [f"{name}:{name}" for name in LISTENERS]
        return {
            "node.id": str(node.id),
            "log.dirs": str(node.folder / "data"),
            "listeners": ",".join(ends.values()),
            "advertised.listeners": ",".join(public),
            "listener.security.protocol.map": ",".join([*protocols, f"{CONTROLLER}:{PLAINTEXT}"]),
            "controller.quorum.bootstrap.servers": ",".join(
                peer.address(CONTROLLER) for peer in self.nodes
            ),
        }

    def _replication(self) -> dict[str, str]:
        copies, enough = str(min(3, len(self.nodes))), str(min(2, len(self.nodes)))
        return {
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": enough,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": enough,
        }

    def _tls(self) -> dict[str, str]:
        if self.certificates is None:
            return {}
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates.server),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.ca),
            # A client may show a certificate and is then known by its subject.
            "listener.name.ssl.ssl.client.auth": "requested",
        }

    def _sasl(self, node: ServerNode) -> dict[str, str]:
        logins = {}
        for listener in node.ports:
            if listener.startswith("SASL"):
                for mechanism in MECHANISMS:
                    place = f"listener.name.{listener.lower()}.{mechanism.lower()}"
                    logins[f"{place}.sasl.jaas.config"] = self._login(mechanism)
        return logins and {**logins, "sasl.enabled.mechanisms": ",".join(MECHANISMS)}

    def _login(self, mechanism: str) -> str:
        if mechanism in SCRAM:  # its users are in the cluster's metadata
            return f"{_MODULES}.scram.ScramLoginModule required;"
        if mechanism == "OAUTHBEARER":
            claim = 'unsecuredLoginStringClaim_sub="broker"'
            return f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required {claim};"
        users = (f'user_{name}="{word}"' for name, word in self.settings.users.items())
        return f"{_MODULES}.plain.PlainLoginModule required {' '.join(users)};"


def write(path: Path, properties: Mapping[str, str]) -> None:
    """Write settings as a Java properties file."""
    lines = (f"{key}={_escape(value)}\n" for key, value in properties.items())
    path.write_text("".join(lines), "ascii")


def _escape(value: str) -> str:
    # Java reads ISO 8859-1, takes a backslash as an escape, and drops blanks at the start.
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[i : i + 2], "big") for i in range(0, len(units), 2))
    return "".join(chr(code) if 0x20 < code < 0x7F else f"\\u{code:04x}" for code in codes)


def _uuid() -> str:
    # Kafka's form of an id. It may not begin with a hyphen, which a zero byte rules out.
    return base64.urlsafe_b64encode(b"\0" + secrets.token_bytes(15)).rstrip(b"=").decode()
