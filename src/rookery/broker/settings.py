"""The user settings of a broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from rookery.broker.groups.settings import ClassicSettings, ConsumerSettings
from rookery.broker.tokens.settings import DelegationTokenSettings
from rookery.cluster.settings import MemberSettings
from rookery.errors import ConfigError
from rookery.log.settings import CareSettings, CompactionSettings, RewriteSettings
from rookery.model.location import Location
from rookery.service.listen.listenersettings import ListenerConfig, ListenerSecurity
from rookery.store.prices import Prices

# With durability "os", a power failure can lose the end of the cluster log but keep journals. Up to
# this many incarnations then have numbers that were used before.
_REGISTRATIONS: Final = 100
UNREACHABLE_BEATS: Final = 5
"""The missed beats after which a broker is expired if its host does not answer."""
_LEASE_BEATS: Final = 3
DEFAULT_LISTEN: Final = "127.0.0.1:9092"


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The settings of one broker process, or of several on a host that share a folder."""

    data: str = "rookery-data"
    """The folder of the log and the cluster log; brokers of one host can share it."""
    store: str = field(default="", metadata={"secret": True})
    """The object store of the log, for brokers on many hosts, such as s3://bucket/prefix; the data
    folder is then not used."""
    cluster: str = field(default="", metadata={"secret": True})
    """The cluster log of these brokers, such as etcd://host:2379; if empty, it is in the store."""
    log_dir: str = ""
    """A Kafka data directory (its log.dirs, separated by commas) that is served in place; our own
    data folder is then not used."""
    read_only: bool = False
    """Serve the log directory without writing to it."""
    defaults: str = ""
    """Defaults for topics without their own settings, under Kafka's names and separated by commas,
    such as log.retention.ms=3600000; for a log directory."""
    confirm_retention: bool = False
    """Allow retention to delete data that was in the log directory when it was opened: old
    segments, offsets of idle groups, and files that Kafka marked as deleted."""
    offsets_topic_partitions: int = field(default=50, metadata={"min": 1, "max": 10_000})
    """The partitions of __consumer_offsets, if it must be created in a log directory."""
    transactions_topic_partitions: int = field(default=50, metadata={"min": 1, "max": 10_000})
    """The partitions of __transaction_state, if it must be created in a log directory."""
    namespace: str = "default"
    """The key prefix of this cluster's segments."""
    inline_bytes: int = field(default=-1, metadata={"min": -1, "max": 65_536})
    """Flushes up to this size are stored in the cluster log's entry; -1 means 64 KiB, but 0 with
    etcd, which would hold the only copy."""
    upload_bytes: int = field(default=8_388_608, metadata={"min": 65_536, "max": 268_435_456})
    """The maximum size of one object that a flush writes to the store."""
    uploads: int = field(default=8, metadata={"min": 1, "max": 256})
    """The maximum number of concurrent flushes to the store."""
    flush_interval_ms: int = field(default=25, metadata={"min": 0, "max": 60_000})
    """The delay before the next small flush while one is in progress, since requests cost money."""
    listen: str = DEFAULT_LISTEN
    """The address for clients; port 0 lets the system choose. A security protocol can precede it:
    sasl_ssl://0.0.0.0:9093. A port alone, as in :9092, is of 127.0.0.1."""
    advertise: str = ""
    """The advertised address, if it differs from the one listened on."""
    secure: bool = False
    """Serve only users, over TLS: creates a certificate authority, a certificate, the user admin
    and settings for clients in the folder `security` of the data folder, or uses those there."""
    security: ListenerSecurity = field(default_factory=ListenerSecurity)
    """The certificate and the logins of listeners, where a listener has no own settings."""
    listeners: dict[str, ListenerConfig] = field(default_factory=dict)
    """Listeners by name, each a table [broker.listeners.NAME]; they replace `listen`."""
    authorizer: Literal["none", "log", "acls"] = "none"
    """How access rules (ACLs) apply: there are none, denials are only logged, or the rules are
    enforced."""
    super_users: str = ""
    """Principals that may do everything, separated by semicolons: User:admin;User:ops."""
    allow_everyone_if_no_acl: bool = False
    """Whether resources without any access rule are open to everyone (Kafka's
    allow.everyone.if.no.acl.found)."""
    access_lease_ms: int = field(default=20_000, metadata={"min": 1, "max": 3_600_000})
    """How long a broker that is cut off from the cluster log continues with the access rules and
    users that it knows, at least three beats; a change of them waits as long for a silent broker.
    It must be the same on all brokers."""
    delegation_tokens: DelegationTokenSettings = field(default_factory=DelegationTokenSettings)
    """Tokens with which jobs log in as the user that created them."""
    insecure: bool = False
    """Allow other hosts to connect to listeners without authentication, and to HTTP without a
    token."""
    audit_file: str = ""
    """A file for the records of logins, denials and administrative changes, one line of JSON each;
    empty for none. Workers share it."""
    bootstrap: str = ""
    """An additional bootstrap address that brokers of this host share."""
    node_id: int = field(default=-1, metadata={"min": -1, "max": 2**31 - 1})
    """This broker's node id; -1 uses the lowest free one."""
    rack: str = ""
    """The broker's rack, for rack-aware clients."""
    workers: int = field(default=1, metadata={"min": 1, "max": 256})
    """The number of processes: brokers on the ports after that of `listen`, which they share."""
    http_listen: str = "127.0.0.1:9644"
    """The HTTP address of metrics and health; empty for none. Workers use consecutive ports."""
    http_token_file: str = ""
    """A file with the token that HTTP requests need (Authorization: Bearer TOKEN)."""
    durability: Literal["disk", "os"] = "disk"
    """When a record is acknowledged: after a sync to disk, or (as in Kafka) a write to the OS."""
    auto_create_topics: bool = True
    """Whether a request for an unknown topic creates it."""
    partitions: int = field(default=1, metadata={"min": 1, "max": 10_000})
    """The default number of partitions of a topic (Kafka's num.partitions)."""
    tail_bytes: int = field(default=268_435_456, metadata={"min": 0})
    """Memory for the newest batches."""
    cache_bytes: int = field(default=268_435_456, metadata={"min": 0})
    """Memory for blocks read from disk."""
    request_bytes: int = field(default=536_870_912, metadata={"min": 1_048_576})
    """Memory for unanswered requests of all clients together."""
    answer_bytes: int = field(default=268_435_456, metadata={"min": 1_048_576})
    """Memory for responses that clients have not read yet, of all clients together."""
    unread_timeout_ms: int = field(default=30_000, metadata={"min": 1})
    """How long a client can leave responses unread while that memory is exhausted."""
    max_connections: int = field(default=10_000, metadata={"min": 1})
    """The maximum number of client connections."""
    max_connections_per_ip: int = field(default=2_147_483_647, metadata={"min": 0})
    """The maximum number of connections from one address (Kafka's max.connections.per.ip)."""
    session_timeout_ms: int = field(default=10_000, metadata={"min": 1})
    """The time without an entry after which the others expire a broker; if nothing listens at its
    address, two and a half beats are enough."""
    beat_interval_ms: int = field(default=1_000, metadata={"min": 1})
    """The interval at which a broker without other writes sends a heartbeat."""
    stall_timeout_ms: int = field(default=5_000, metadata={"min": 1})
    """How long a store, cluster log or disk can fail to answer before it is reported as stalled."""
    upkeep_interval_ms: int = field(default=10_000, metadata={"min": 1})
    """The interval of retention and other log maintenance."""
    snapshot_entries: int = field(default=10_000, metadata={"min": 1})
    """The number of cluster log entries after which a snapshot of the state is written."""
    snapshot_bytes: int = field(default=67_108_864, metadata={"min": 1})
    """The number of cluster log bytes after which a snapshot of the state is written, because a
    restart must replay all entries after it."""
    delete_delay_ms: int = field(default=60_000, metadata={"min": 0})
    """How long an unreferenced object stays until it is condemned, and then until it is deleted, so
    that current readers can finish."""
    orphan_interval_ms: int = field(default=600_000, metadata={"min": 1})
    """The interval of the search for objects that were written but never committed."""
    caretaker: Literal["process", "inline", "off"] = "process"
    """Where log maintenance runs: in a child process, in this process, or in no process of this
    broker."""
    rewrite: RewriteSettings = field(default_factory=RewriteSettings)
    """How batches are merged into larger objects and segments."""
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    """How topics with cleanup.policy=compact are compacted."""
    classic_groups: ClassicSettings = field(default_factory=ClassicSettings)
    """Groups whose members assign partitions themselves."""
    consumer_groups: ConsumerSettings = field(default_factory=ConsumerSettings)
    """Groups whose partitions the broker assigns (group.protocol=consumer)."""
    group_lag_partitions: int = field(default=10_000, metadata={"min": 0, "max": 1_000_000})
    """The maximum number of group partitions with a lag metric; others are counted as omitted."""
    prices: Prices = field(default_factory=Prices)
    """The prices of the store, for the cost metrics."""
    producer_expiration_ms: int = field(default=86_400_000, metadata={"min": 1})
    """The time after which an idle producer expires (Kafka's producer.id.expiration.ms)."""
    offsets_retention_ms: int = field(default=604_800_000, metadata={"min": 1})
    """How long the offsets of a group without members are kept (Kafka's
    offsets.retention.minutes)."""
    transaction_max_timeout_ms: int = field(default=900_000, metadata={"min": 1})
    """The longest transaction timeout that a producer can request (Kafka's
    transaction.max.timeout.ms)."""
    transactional_id_expiration_ms: int = field(default=604_800_000, metadata={"min": 1})
    """The time after which an idle transactional id expires (Kafka's
    transactional.id.expiration.ms)."""
    drain_timeout_ms: int = field(default=4_000, metadata={"min": 0})
    """How long a stopping broker waits for requests in flight."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level of messages in the log."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "store", Location(self.store))
        object.__setattr__(self, "cluster", Location(self.cluster))

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> BrokerSettings:
        """Return settings from the output of `dataclasses.asdict`, for a child process."""
        nested = {
            "rewrite": RewriteSettings(**values["rewrite"]),
            "compaction": CompactionSettings(**values["compaction"]),
            "classic_groups": ClassicSettings(**values["classic_groups"]),
            "consumer_groups": ConsumerSettings(**values["consumer_groups"]),
            "delegation_tokens": DelegationTokenSettings(**values["delegation_tokens"]),
            "prices": Prices(**values["prices"]),
            "security": ListenerSecurity(**values["security"]),
            "listeners": {
                name: ListenerConfig(**table) for name, table in values["listeners"].items()
            },
        }
        return cls(**(values | nested))

    def client_listeners(self) -> dict[str, ListenerConfig]:
        """Return the listeners by name, complete; the first one identifies the broker.

        Raises:
            ConfigError: there are two sources of listeners, or a protocol does not exist.
        """
        if not self.listeners:
            only = ListenerConfig(listen=self.listen, advertise=self.advertise)
            return {only.protocol.name: only.over(self.security)}
        if self.listen != DEFAULT_LISTEN or self.advertise:
            raise ConfigError(
                "the tables [broker.listeners.NAME] replace it; add a table instead",
                name="advertise" if self.advertise else "listen",
            )
        return {name: listener.over(self.security) for name, listener in self.listeners.items()}

    def member(self) -> MemberSettings:
        """Return the broker's settings as a member of the cluster."""
        return MemberSettings(
            beat_ms=min(self.beat_interval_ms, max(1, self.session_timeout_ms // 3)),
            lease_ms=max(self.access_lease_ms, self.beat_interval_ms * _LEASE_BEATS),
            leave_ms=max(self.drain_timeout_ms, 1_000) // 2,
            max_registrations=_REGISTRATIONS if self.durability == "os" else 1,
            is_eager=True,
        )

    def care(self) -> CareSettings:
        """Return the settings of the caretaker."""
        return CareSettings(
            snapshot_entries=self.snapshot_entries,
            snapshot_bytes=self.snapshot_bytes,
            snapshot_age_ms=6 * self.upkeep_interval_ms,
            producer_expiration_ms=self.producer_expiration_ms,
        )
