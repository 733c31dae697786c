"""What a user can set of a broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from rookery.broker.groups.settings import ClassicSettings, ConsumerSettings
from rookery.cluster.settings import MemberSettings
from rookery.log.settings import CareSettings, CompactionSettings, RewriteSettings
from rookery.model.location import Location
from rookery.store.prices import Prices

# With durability "os" a power cut can take the end of the cluster log and leave journals. Up to
# this many incarnations then have numbers that were used before.
_REGISTRATIONS: Final = 100


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """One broker process, or several on a host that share a folder."""

    data: str = "rookery-data"
    """The folder of the log and of the cluster's log; brokers of one host may share it."""
    store: str = field(default="", metadata={"secret": True})
    """The object store of the log, for brokers on many hosts, such as s3://bucket/prefix; the data
    folder is not used then."""
    cluster: str = field(default="", metadata={"secret": True})
    """Where these brokers agree, such as etcd://host:2379; if empty, in the store itself."""
    log_dir: str = ""
    """A data directory of Kafka's (its log.dirs, with commas between) that is served in place; our
    own data folder is not used then."""
    read_only: bool = False
    """Serve the log directory without writing anything into it."""
    defaults: str = ""
    """What topics inherit that say nothing themselves, under Kafka's names and with commas between,
    such as log.retention.ms=3600000; for a log directory."""
    confirm_retention: bool = False
    """Let retention delete what was in the log directory when it was opened: old segments, idle
    groups' offsets, and files that Kafka marked as deleted."""
    offsets_topic_partitions: int = field(default=50, metadata={"min": 1, "max": 10_000})
    """Partitions of __consumer_offsets, if it has to be made in a log directory."""
    transactions_topic_partitions: int = field(default=50, metadata={"min": 1, "max": 10_000})
    """Partitions of __transaction_state, if it has to be made in a log directory."""
    namespace: str = "default"
    """What the keys of this cluster's segments begin with."""
    inline_bytes: int = field(default=-1, metadata={"min": -1, "max": 65_536})
    """Flushes up to this size ride in the cluster log's entry; -1 takes 64 KiB, but none in etcd,
    which would be the only place that has them."""
    upload_bytes: int = field(default=8_388_608, metadata={"min": 65_536, "max": 268_435_456})
    """A flush to the store takes no more than this into one object."""
    uploads: int = field(default=8, metadata={"min": 1, "max": 256})
    """Flushes to the store at the same time."""
    flush_interval_ms: int = field(default=25, metadata={"min": 0, "max": 60_000})
    """While one flush is under way, the next small one begins after this long: requests cost."""
    listen: str = "127.0.0.1:9092"
    """Where clients connect; port 0 lets the system choose."""
    advertise: str = ""
    """The address that clients are told, if it is not the one listened on."""
    bootstrap: str = ""
    """A further address, shared with other brokers of this host, where clients may begin."""
    node_id: int = field(default=-1, metadata={"min": -1, "max": 2**31 - 1})
    """This broker's number; -1 takes the lowest that is free."""
    rack: str = ""
    """Where the broker stands, for clients that care."""
    workers: int = field(default=1, metadata={"min": 1, "max": 256})
    """Processes: each is a broker, on the ports that follow that of `listen`, which they share."""
    http_listen: str = "127.0.0.1:9644"
    """Metrics and health over HTTP; empty for none. Workers take this port and the next ones."""
    durability: Literal["disk", "os"] = "disk"
    """What an acknowledged record has survived: a sync to disk, or (as Kafka) a write to the OS."""
    auto_create_topics: bool = True
    """Whether asking for an unknown topic makes it."""
    partitions: int = field(default=1, metadata={"min": 1, "max": 10_000})
    """Partitions of a topic whose creator does not say (Kafka's num.partitions)."""
    tail_bytes: int = field(default=268_435_456, metadata={"min": 0})
    """Memory for the newest batches."""
    cache_bytes: int = field(default=268_435_456, metadata={"min": 0})
    """Memory for what is read from disk."""
    request_bytes: int = field(default=536_870_912, metadata={"min": 1_048_576})
    """Memory for requests that are not answered yet, of all clients together."""
    answer_bytes: int = field(default=268_435_456, metadata={"min": 1_048_576})
    """Memory for answers that are not read yet, of all clients together."""
    unread_timeout_ms: int = field(default=30_000, metadata={"min": 1})
    """How long a client may leave its answers unread while that memory is short."""
    max_connections: int = field(default=10_000, metadata={"min": 1})
    """Clients at the same time."""
    session_timeout_ms: int = field(default=10_000, metadata={"min": 1})
    """After this long without an entry the others expire a broker; much sooner, after two beats and
    a half, if nothing listens at its address."""
    beat_interval_ms: int = field(default=1_000, metadata={"min": 1})
    """How often a broker that writes nothing else shows that it lives."""
    stall_timeout_ms: int = field(default=5_000, metadata={"min": 1})
    """Readiness and the log report a store, cluster log or disk without an answer for this long."""
    upkeep_interval_ms: int = field(default=10_000, metadata={"min": 1})
    """How often retention and the log's other upkeep run."""
    snapshot_entries: int = field(default=10_000, metadata={"min": 1})
    """A snapshot of the cluster's state is written after so many entries of its log."""
    snapshot_bytes: int = field(default=67_108_864, metadata={"min": 1})
    """… or after so many bytes of them: a restart has to read what comes after the snapshot."""
    delete_delay_ms: int = field(default=60_000, metadata={"min": 0})
    """How long an object that nothing lives in stays until it is condemned, and then until it is
    deleted: for readers that are still at it."""
    orphan_interval_ms: int = field(default=600_000, metadata={"min": 1})
    """How often objects are looked for that were written but never committed."""
    caretaker: Literal["process", "inline", "off"] = "process"
    """Where the log's upkeep runs: in a child process, in this one, or in no process of this
    broker's."""
    rewrite: RewriteSettings = field(default_factory=RewriteSettings)
    """How batches are brought into larger objects and segments."""
    compaction: CompactionSettings = field(default_factory=CompactionSettings)
    """How topics with cleanup.policy=compact are compacted."""
    classic_groups: ClassicSettings = field(default_factory=ClassicSettings)
    """Groups whose members assign partitions themselves."""
    consumer_groups: ConsumerSettings = field(default_factory=ConsumerSettings)
    """Groups whose partitions the broker assigns (group.protocol=consumer)."""
    group_lag_partitions: int = field(default=10_000, metadata={"min": 0, "max": 1_000_000})
    """How many partitions of groups have a lag metric; the rest is counted as omitted."""
    prices: Prices = field(default_factory=Prices)
    """What the store asks for, for the metrics."""
    producer_expiration_ms: int = field(default=86_400_000, metadata={"min": 1})
    """After so long an idle producer is forgotten (Kafka's producer.id.expiration.ms)."""
    offsets_retention_ms: int = field(default=604_800_000, metadata={"min": 1})
    """After so long without members a group's offsets are forgotten (Kafka's
    offsets.retention.minutes)."""
    transaction_max_timeout_ms: int = field(default=900_000, metadata={"min": 1})
    """The longest that a producer may let a transaction be open (Kafka's
    transaction.max.timeout.ms)."""
    transactional_id_expiration_ms: int = field(default=604_800_000, metadata={"min": 1})
    """After so long an idle transactional id is forgotten (Kafka's
    transactional.id.expiration.ms)."""
    drain_timeout_ms: int = field(default=4_000, metadata={"min": 0})
    """How long a stopping broker waits for requests in flight."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What is worth a line in the log."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "store", Location(self.store))
        object.__setattr__(self, "cluster", Location(self.cluster))

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> BrokerSettings:
        """Return settings from what `dataclasses.asdict` makes of them, for a child process."""
        nested = {
            "rewrite": RewriteSettings(**values["rewrite"]),
            "compaction": CompactionSettings(**values["compaction"]),
            "classic_groups": ClassicSettings(**values["classic_groups"]),
            "consumer_groups": ConsumerSettings(**values["consumer_groups"]),
            "prices": Prices(**values["prices"]),
        }
        return cls(**(values | nested))

    def member(self) -> MemberSettings:
        """Return how the broker is a member of the cluster."""
        return MemberSettings(
            beat_ms=self.beat_interval_ms,
            leave_ms=max(self.drain_timeout_ms, 1_000) // 2,
            max_registrations=_REGISTRATIONS if self.durability == "os" else 1,
            is_eager=True,
        )

    def care(self) -> CareSettings:
        """Return what the caretaker goes by."""
        return CareSettings(
            snapshot_entries=self.snapshot_entries,
            snapshot_bytes=self.snapshot_bytes,
            snapshot_age_ms=6 * self.upkeep_interval_ms,
            producer_expiration_ms=self.producer_expiration_ms,
        )
