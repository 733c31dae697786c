"""The limits of connections from clients and to brokers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The limits of one client connection."""

    requires_authentication: bool = False
    """Whether the handshake completes only when the client has authenticated."""
    max_frame_bytes: int = 104_857_600
    """The largest request (Kafka's socket.request.max.bytes)."""
    max_unauthenticated_frame_bytes: int = 524_288
    """The largest request before authentication (sasl.server.max.receive.size)."""
    max_in_flight: int = 64
    """The maximum number of concurrent requests of one client."""
    max_unanswered_bytes: int = 128 * 1024 * 1024
    """Bytes of those requests at which reading stops; one complete frame is always allowed."""
    max_unsent_bytes: int = 1024 * 1024
    """Bytes of unread responses at which work for the client stops."""
    handshake_timeout_ms: int = 10_000
    """The time limit from the connection to its first request, or to its authentication."""
    receive_timeout_ms: int = 60_000
    """The time limit from a request's first byte to its last; also the check interval."""
    idle_timeout_ms: int = 600_000
    """The idle limit (Kafka's connections.max.idle.ms), also for unread responses."""
    linger_ms: int = 5_000
    """The time limit for the last responses when the connection is closed."""


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """The limits of a connection to a broker."""

    client_id: str | None = "rookery"
    """The client id under which brokers log and meter these requests."""
    connect_timeout_ms: int = 10_000
    """The time limit for name resolution, connecting and the TLS handshake together."""
    max_frame_bytes: int = 104_857_600
    """The maximum size of a response."""
    max_in_flight: int = 100
    """The maximum number of requests in flight; further ones are queued in order."""
    max_unsent_bytes: int = 4 * 1024 * 1024
    """Bytes in the transport's buffer, at which further requests stay in the queue."""
    max_queued_bytes: int = 16 * 1024 * 1024
    """Bytes in the queue, at which the upstream is full; it has room again at half of this."""
    max_unread_bytes: int = 16 * 1024 * 1024
    """Bytes of kept responses, at which reading stops; it resumes at half of this."""
