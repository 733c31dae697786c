"""The settings of the client and its producers, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rookery.errors import ApiError, ConfigError
from rookery.model.address import Address, parse_addresses
from rookery.records.batches import HEADER_SIZE
from rookery.records.compression import Codec, find_codec
from rookery.security.tls import ClientTls

ACKS_NONE: Final = 0
"""No acknowledgement: the fastest, but lost records are not detected."""
ACKS_LEADER: Final = 1
"""The leader acknowledges; records are lost if it fails before they are replicated."""
ACKS_ALL: Final = -1
"""All in-sync replicas acknowledge."""

MAX_IN_FLIGHT: Final = 5
"""The number of batches per producer and partition whose sequences a broker remembers (KIP-98)."""


@dataclass(frozen=True, slots=True)
class Sasl:
    """The credentials for brokers that require a login."""

    mechanism: str
    """PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."""
    username: str = ""
    """The user's name."""
    password: str = field(default="", repr=False)
    """The user's password; PLAIN sends it unencrypted, so use TLS."""
    token: str = field(default="", repr=False)
    """The token for OAUTHBEARER, which is sent unencrypted, so use TLS."""
    token_file: str = ""
    """A file with the token instead; each login reads it again."""
    is_delegation_token: bool = False
    """Whether user name and password are the id and the HMAC (in base64) of a delegation token; for
    SCRAM."""

    def __post_init__(self) -> None:
        if self.is_delegation_token and not self.mechanism.startswith("SCRAM-"):
            raise ConfigError(
                f"delegation tokens need SCRAM, not {self.mechanism}", name="sasl.mechanism"
            )

    def read_token(self) -> str:
        """Return the token.

        Raises:
            ConfigError: there is none, or its file cannot be read.
        """
        if not self.token_file:
            return self.token
        try:
            return Path(self.token_file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"sasl.token_file: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """How to connect to a cluster, and its timeouts."""

    bootstrap: str
    """`host:port` of one or more brokers, separated by commas; the others are discovered."""
    client_id: str = "rookery"
    """The name under which brokers log and meter our requests."""
    tls: ClientTls | None = None
    """The TLS settings; None for plaintext listeners."""
    sasl: Sasl | None = None
    """The login; None for listeners that do not require one."""
    call_timeout_ms: int = 60_000
    """The deadline of a whole call, including all retries."""
    request_timeout_ms: int = 30_000
    """How long to wait for one response before trying elsewhere."""
    connect_timeout_ms: int = 10_000
    """For connecting to one broker, including the login."""
    retry_backoff_ms: int = 100
    """The pause before the first retry; it doubles with each retry."""
    retry_backoff_max_ms: int = 1_000
    """The longest pause."""
    metadata_max_age_ms: int = 300_000
    """The age at which cluster metadata is refreshed."""
    unknown_topic_ms: int = 3_000
    """How long to wait for an unknown topic; a new topic takes a moment to appear."""
    max_frame_bytes: int = 104_857_600
    """The largest response that is accepted."""
    kept_bytes: int = 64 * 1024 * 1024
    """The memory of large responses that all connections together keep for reuse."""
    max_versions: Mapping[int, int] = field(default_factory=dict)
    """The highest version to use, by API key, to test compatibility with old brokers."""

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
    """How records are batched, compressed and sent."""

    acks: int = ACKS_ALL
    """`ACKS_ALL`, `ACKS_LEADER` or `ACKS_NONE`: which replicas must acknowledge a batch."""
    is_idempotent: bool | None = None
    """Whether retries never store a record twice; None: yes if `acks` is `ACKS_ALL`."""
    compression: str = "none"
    """none, gzip, snappy, lz4 or zstd."""
    compression_level: int | None = None
    """The codec's level; None: its default."""
    linger_ms: int = 5
    """How long a batch waits for more records."""
    batch_bytes: int = 64 * 1024
    """The size at which a batch is sent immediately; a larger record gets its own batch."""
    max_request_bytes: int = 1024 * 1024
    """The maximum size of one request, and of one record."""
    buffer_bytes: int = 32 * 1024 * 1024
    """The number of undelivered bytes at which `send` waits."""
    max_in_flight: int = MAX_IN_FLIGHT
    """The maximum number of concurrent requests to one broker."""
    delivery_timeout_ms: int = 120_000
    """The maximum time to deliver a record, including all retries."""

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
            # A missing library or a wrong level must fail here, not while sending.
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
            return find_codec(self.compression)
        except ApiError as error:
            raise ConfigError(f"compression: {error.text}") from None


def _check_positive(name: str, value: int) -> None:
    if value <= 0:
        raise ConfigError(f"{name}: must be above 0, not {value}")
