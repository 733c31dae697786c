"""The bounds of connections: a client's to us, and ours to a broker."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The bounds of one connection, as the server sees it."""

    requires_authentication: bool = False
    """Whether the handshake is done only when the client has authenticated."""
    max_frame_bytes: int = 104_857_600
    """The largest request (Kafka's socket.request.max.bytes)."""
    max_unauthenticated_frame_bytes: int = 524_288
    """The largest request before authentication (sasl.server.max.receive.size)."""
    max_in_flight: int = 64
    """Requests of one client that are worked on at the same time."""
    max_unanswered_bytes: int = 128 * 1024 * 1024
    """Bytes of those requests at which reading stops; one frame may always arrive whole."""
    max_unsent_bytes: int = 1024 * 1024
    """Bytes of answers waiting to be read by the client, at which work for it stops."""
    handshake_timeout_ms: int = 10_000
    """From the connection to its first request, or to its authentication."""
    receive_timeout_ms: int = 60_000
    """From a request's first byte to its last; it is looked at this often."""
    idle_timeout_ms: int = 600_000
    """Without a request (Kafka's connections.max.idle.ms), or with answers left unread."""
    linger_ms: int = 5_000
    """For the last answers to be made and sent, when the connection is closed."""


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """The bounds of a connection to a broker."""

    client_id: str | None = "rookery"
    """The name under which brokers log and meter our requests."""
    connect_timeout_ms: int = 10_000
    """For looking up the name, connecting and the TLS handshake together."""
    max_frame_bytes: int = 104_857_600
    """The largest response."""
    max_in_flight: int = 100
    """Requests sent and not yet answered; more wait, in order."""
    max_unsent_bytes: int = 4 * 1024 * 1024
    """Bytes in the transport's buffer, at which more requests wait in our queue."""
    max_queued_bytes: int = 16 * 1024 * 1024
    """Bytes in our queue, at which the upstream is full; it has room again at half of this."""
    max_unread_bytes: int = 16 * 1024 * 1024
    """Bytes of kept responses, at which reading stops; it goes on at half of this."""
