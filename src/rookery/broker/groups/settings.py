"""What a user can set of groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

_OWN: Final = {
    "consumer.heartbeat.interval.ms": "heartbeat_interval_ms",
    "consumer.session.timeout.ms": "session_timeout_ms",
}


@dataclass(frozen=True, slots=True)
class ClassicSettings:
    """What a user can set of classic groups."""

    min_session_timeout_ms: int = field(default=6_000, metadata={"min": 1})
    """The shortest session time-out a member may ask for (Kafka's group.min.session.timeout.ms)."""
    max_session_timeout_ms: int = field(default=1_800_000, metadata={"min": 1})
    """The longest (Kafka's group.max.session.timeout.ms)."""
    initial_rebalance_delay_ms: int = field(default=50, metadata={"min": 0, "max": 600_000})
    """How long an empty group waits for more members after each one that joins (Kafka's
    group.initial.rebalance.delay.ms, 3000 there and 0 in its quick start). Members started
    together meet in one generation even so, and a lone one need not wait."""
    max_size: int = field(default=2**31 - 1, metadata={"min": 1, "max": 2**31 - 1})
    """How many members a group may have (Kafka's group.max.size)."""
    max_bytes: int = field(default=1_048_576, metadata={"min": 1_024, "max": 67_108_864})
    """How much metadata, and how much assignment, the members of a group may have together: it is
    kept in the cluster log (Kafka bounds its record by message.max.bytes)."""
    new_member_timeout_ms: int = field(default=300_000, metadata={"min": 1})
    """After so long in a rebalance that does not end, a new member is sent away to try again."""


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """What a user can set of consumer groups."""

    session_timeout_ms: int = field(default=45_000, metadata={"min": 1})
    """After so long without a heartbeat a member is taken for dead (Kafka's
    group.consumer.session.timeout.ms)."""
    heartbeat_interval_ms: int = field(default=5_000, metadata={"min": 1})
    """How often members are told to show that they live (Kafka's
    group.consumer.heartbeat.interval.ms)."""
    waiting_interval_ms: int = field(default=500, metadata={"min": 1})
    """… while they wait for what others have to give up first."""
    max_size: int = field(default=2**31 - 1, metadata={"min": 1, "max": 2**31 - 1})
    """How many members a group may have (Kafka's group.consumer.max.size)."""
    max_bytes: int = field(default=1_048_576, metadata={"min": 1_024, "max": 67_108_864})
    """How long the members' subscriptions may be together: they are kept in the cluster log."""
    migration_policy: Literal["disabled", "upgrade", "downgrade", "bidirectional"] = "bidirectional"
    """Which way a group with members may change its protocol (Kafka's
    group.consumer.migration.policy): up, when the first member of the new protocol joins a classic
    group; down, when the last one leaves. One without members takes whatever comes next."""

    def override(self, configs: Mapping[str, str]) -> ConsumerSettings:
        """Return the settings of a group that has some of its own, by Kafka's names."""
        fields: dict[str, Any] = {
            name: int(configs[key]) for key, name in _OWN.items() if key in configs
        }
        return replace(self, **fields)

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group with members may become a consumer group."""
        return self.migration_policy in ("upgrade", "bidirectional")

    @property
    def may_downgrade(self) -> bool:
        """Whether a consumer group whose members are all classic may become a classic group."""
        return self.migration_policy in ("downgrade", "bidirectional")
