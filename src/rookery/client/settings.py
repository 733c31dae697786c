"""What a user may choose about the client and its producers; plain values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rookery.errors import ApiError, ConfigError
from rookery.model.address import Address, parse_addresses
from rookery.records.batch import HEADER_SIZE
from rookery.records.compression import Codec, named
from rookery.security.tls import ClientTls

ACKS_NONE: Final = 0
"""Send and forget: the fastest, and nobody will know what was lost."""
ACKS_LEADER: Final = 1
"""The leader has it; a leader that dies right then takes it along."""
ACKS_ALL: Final = -1
"""Every in-sync replica has it."""

MAX_IN_FLIGHT: Final = 5
"""Batches of a producer and partition whose sequences a broker remembers (KIP-98)."""


@dataclass(frozen=True, slots=True)
class Sasl:
    """Who we are to brokers that ask for a name and a password."""

    mechanism: str
    """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""
    username: str
    """The user's name."""
    password: str = field(repr=False)
    """The user's password; with PLAIN it crosses the wire as it is, so use TLS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How to reach a cluster, and how patient to be with it."""

    bootstrap: str
    """`host:port` of one broker or more, with commas between; the rest is found through them."""
    client_id: str = "rookery"
    """The name under which brokers log and meter our requests."""
    tls: ClientTls | None = None
    """How to speak TLS; None for plain listeners."""
    sasl: Sasl | None = None
    """How to log in; None for listeners that do not ask."""
    call_timeout_ms: int = 60_000
    """The deadline of a whole call, all its retries included."""
    request_timeout_ms: int = 30_000
    """How long to wait for one answer before trying elsewhere."""
    connect_timeout_ms: int = 10_000
    """For connecting to one broker, logging in included."""
    retry_backoff_ms: int = 100
    """The pause before the first retry; it doubles from one to the next."""
    retry_backoff_max_ms: int = 1_000
    """The longest pause."""
    metadata_max_age_ms: int = 300_000
    """The age at which the map of the cluster is asked for again."""
    unknown_topic_ms: int = 3_000
    """How long a topic that no broker knows is waited for; a new one takes a moment to be seen."""
    max_frame_bytes: int = 104_857_600
    """The largest answer that is read."""
    kept_bytes: int = 64 * 1024 * 1024
    """Memory of large answers that is kept for the next ones, by all connections together."""
    max_versions: Mapping[int, int] = field(default_factory=dict)
    """The highest version to use, by API key: to try how old brokers are spoken to."""

    def __post_init__(self) -> None:
        parse_addresses(self.bootstrap, "bootstrap")
        for name in ("call_timeout_ms", "request_timeout_ms", "connect_timeout_ms"):
            _check_positive(name, getattr(self, name))
        _check_positive("retry_backoff_ms", self.retry_backoff_ms)

    @property
    def addresses(self) -> list[Address]:
        """The bootstrap addresses, each once."""
        return parse_addresses(self.bootstrap, "bootstrap")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings:
    """How records are gathered, packed and sent."""

    acks: int = ACKS_ALL
    """`ACKS_ALL`, `ACKS_LEADER` or `ACKS_NONE`: who must have a batch before it counts."""
    is_idempotent: bool | None = None
    """Whether a retry can never be stored twice; None: yes if `acks` is `ACKS_ALL`."""
    compression: str = "none"
    """none, gzip, snappy, lz4 or zstd."""
    compression_level: int | None = None
    """The codec's own level; None: its default."""
    linger_ms: int = 5
    """How long a batch waits for more records."""
    batch_bytes: int = 64 * 1024
    """The size at which a batch is sent at once; a larger record has a batch of its own."""
    max_request_bytes: int = 1024 * 1024
    """The size of one request, and of the largest record."""
    buffer_bytes: int = 32 * 1024 * 1024
    """Bytes of records not yet delivered, at which `send` waits."""
    max_in_flight: int = MAX_IN_FLIGHT
    """Requests to one broker at the same time."""
    delivery_timeout_ms: int = 120_000
    """How long a record may take to be delivered, all retries included."""

    def __post_init__(self) -> None:
        self._check_acks()
        if self.linger_ms < 0:
            raise ConfigError(f"linger_ms: {self.linger_ms} is negative")
        for name in ("batch_bytes", "buffer_bytes", "delivery_timeout_ms"):
            _check_positive(name, getattr(self, name))
        if self.max_request_bytes <= HEADER_SIZE:
            raise ConfigError(f"max_request_bytes: {self.max_request_bytes} holds no record")
        if not 1 <= self.max_in_flight <= MAX_IN_FLIGHT:
            raise ConfigError(
                f"max_in_flight: must be 1 to {MAX_IN_FLIGHT}, not {self.max_in_flight}; "
                "brokers remember no more batches of a producer"
            )
        self._check_codec()

    def _check_acks(self) -> None:
        if self.acks not in {ACKS_NONE, ACKS_LEADER, ACKS_ALL}:
            raise ConfigError(f"acks: must be 0, 1 or -1 (all), not {self.acks}")
        if self.is_idempotent and self.acks != ACKS_ALL:
            raise ConfigError(f"is_idempotent: needs acks=-1 (all), not {self.acks}")

    def _check_codec(self) -> None:
        try:
            # A library that is missing or a level that is wrong shows here, not in the stream.
            self.codec.compress(b"rookery", self.compression_level)
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(
                f"compression, compression_level: {self.compression} cannot be used "
                f"at level {self.compression_level}: {error}"
            ) from error

    @property
    def has_sequences(self) -> bool:
        """Whether batches carry a producer id and sequences."""
        return self.acks == ACKS_ALL if self.is_idempotent is None else self.is_idempotent

    @property
    def codec(self) -> Codec:
        """The codec that `compression` names."""
        try:
            return named(self.compression)
        except ApiError as error:
            raise ConfigError(f"compression: {error.text}") from None


def _check_positive(name: str, value: int) -> None:
    if value <= 0:
        raise ConfigError(f"{name}: must be above 0, not {value}")
