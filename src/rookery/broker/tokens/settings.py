"""The settings of delegation tokens."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DelegationTokenSettings:
    """Tokens that users create for their jobs, to log in without the user's own password."""

    enabled: bool = True
    """Whether users can create tokens and log in with them."""
    secret_file: str = ""
    """A file with the key of the tokens' passwords (Kafka's delegation.token.secret.key), the same
    for all brokers; if empty, the cluster's own secret is the key."""
    max_lifetime_ms: int = field(default=604_800_000, metadata={"min": 1})
    """How long a token can live at most (Kafka's delegation.token.max.lifetime.ms)."""
    expiry_ms: int = field(default=86_400_000, metadata={"min": 1})
    """How long a token lives until it must be renewed (Kafka's delegation.token.expiry.time.ms)."""
