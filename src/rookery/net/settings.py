"""The bounds of a client's connection."""

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
