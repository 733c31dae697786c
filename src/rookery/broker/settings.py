"""What a user can set of a broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """One broker process, or several on a host that share a folder."""

    data: str = "rookery-data"
    """The folder of the log and of the cluster's log; brokers of one host may share it."""
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
    max_connections: int = field(default=10_000, metadata={"min": 1})
    """Clients at the same time."""
    session_timeout_ms: int = field(default=10_000, metadata={"min": 1})
    """After so long without a word a broker is taken for dead by the others."""
    beat_interval_ms: int = field(default=3_000, metadata={"min": 1})
    """How often a broker that has nothing else to say shows that it lives."""
    upkeep_interval_ms: int = field(default=10_000, metadata={"min": 1})
    """How often retention and the log's other upkeep run."""
    snapshot_entries: int = field(default=10_000, metadata={"min": 1})
    """A snapshot of the cluster's state is written after so many entries of its log."""
    snapshot_bytes: int = field(default=67_108_864, metadata={"min": 1})
    """… or after so many bytes of them: a restart has to read what comes after the snapshot."""
    delete_delay_ms: int = field(default=60_000, metadata={"min": 0})
    """How long a journal that nothing lives in stays, for readers that are still at it."""
    producer_expiration_ms: int = field(default=86_400_000, metadata={"min": 1})
    """After so long an idle producer is forgotten (Kafka's producer.id.expiration.ms)."""
    drain_timeout_ms: int = field(default=4_000, metadata={"min": 0})
    """How long a stopping broker waits for requests in flight."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What is worth a line in the log."""
