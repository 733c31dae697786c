"""What a user can set of a broker."""

from __future__ import annotations

from dataclasses import dataclass
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
    node_id: int = -1
    """This broker's number; -1 takes the lowest that is free."""
    rack: str = ""
    """Where the broker stands, for clients that care."""
    workers: int = 1
    """Processes: each is a broker with its own port, the first ports following `listen`."""
    http_listen: str = "127.0.0.1:9644"
    """Metrics and health over HTTP; empty for none."""
    durability: Literal["disk", "os"] = "disk"
    """What an acknowledged record has survived: a sync to disk, or (as Kafka) a write to the OS."""
    auto_create_topics: bool = True
    """Whether asking for an unknown topic makes it."""
    partitions: int = 1
    """Partitions of a topic whose creator does not say (Kafka's num.partitions)."""
    tail_bytes: int = 268_435_456
    """Memory for the newest batches."""
    cache_bytes: int = 268_435_456
    """Memory for what is read from disk."""
    request_bytes: int = 536_870_912
    """Memory for requests that are not answered yet, of all clients together."""
    max_connections: int = 10_000
    """Clients at the same time."""
    session_timeout_ms: int = 10_000
    """After so long without a word a broker is taken for dead by the others."""
    beat_interval_ms: int = 3_000
    """How often a broker that has nothing else to say shows that it lives."""
    upkeep_interval_ms: int = 10_000
    """How often retention and the log's other upkeep run."""
    snapshot_entries: int = 10_000
    """A snapshot of the cluster's state is written after so many entries of its log."""
    delete_delay_ms: int = 60_000
    """How long a journal that nothing lives in stays, for readers that are still at it."""
    producer_expiration_ms: int = 86_400_000
    """After so long an idle producer is forgotten (Kafka's producer.id.expiration.ms)."""
    drain_timeout_ms: int = 4_000
    """How long a stopping broker waits for requests in flight."""
