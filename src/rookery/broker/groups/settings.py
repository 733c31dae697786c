"""User settings for groups."""

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
    """User settings for classic groups."""

    min_session_timeout_ms: int = field(default=6_000, metadata={"min": 1})
    """The shortest session timeout a member can request (Kafka's group.min.session.timeout.ms)."""
    max_session_timeout_ms: int = field(default=1_800_000, metadata={"min": 1})
    """The longest session timeout a member can request (Kafka's group.max.session.timeout.ms)."""
    initial_rebalance_delay_ms: int = field(default=50, metadata={"min": 0, "max": 600_000})
    """How long an empty group waits for more members after each one that joins (Kafka's
    group.initial.rebalance.delay.ms, 3000 there and 0 in its quick start). Members that start
    together still share one generation, and a single member does not wait long."""
    max_size: int = field(default=2**31 - 1, metadata={"min": 1, "max": 2**31 - 1})
    """The maximum number of members of a group (Kafka's group.max.size)."""
    max_bytes: int = field(default=1_048_576, metadata={"min": 1_024, "max": 67_108_864})
    """The maximum size of a group's metadata, and of its assignment, over all members. Both are
    stored in the cluster log (Kafka limits its record by message.max.bytes)."""
    new_member_timeout_ms: int = field(default=300_000, metadata={"min": 1})
    """How long a new member waits in an unfinished rebalance before it is removed to try again."""


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """User settings for consumer groups."""

    session_timeout_ms: int = field(default=45_000, metadata={"min": 1})
    """The time without a heartbeat after which a member is considered dead (Kafka's
    group.consumer.session.timeout.ms)."""
    heartbeat_interval_ms: int = field(default=5_000, metadata={"min": 1})
    """The heartbeat interval of members (Kafka's group.consumer.heartbeat.interval.ms)."""
    waiting_interval_ms: int = field(default=500, metadata={"min": 1})
    """The heartbeat interval of members that wait for partitions of others."""
    max_size: int = field(default=2**31 - 1, metadata={"min": 1, "max": 2**31 - 1})
    """The maximum number of members of a group (Kafka's group.consumer.max.size)."""
    max_bytes: int = field(default=1_048_576, metadata={"min": 1_024, "max": 67_108_864})
    """The maximum total size of the members' subscriptions, which the cluster log stores."""
    migration_policy: Literal["disabled", "upgrade", "downgrade", "bidirectional"] = "bidirectional"
    """The directions in which a group with members can change its protocol (Kafka's
    group.consumer.migration.policy): up, when the first member of the new protocol joins a classic
    group; down, when the last one leaves. A group without members takes the protocol of the next
    member."""

    def override(self, configs: Mapping[str, str]) -> ConsumerSettings:
        """Return the settings with a group's own values applied, by Kafka's names."""
        fields: dict[str, Any] = {
            name: int(configs[key]) for key, name in _OWN.items() if key in configs
        }
        return replace(self, **fields)

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group with members can become a consumer group."""
        return self.migration_policy in ("upgrade", "bidirectional")

    @property
    def may_downgrade(self) -> bool:
        """Whether a consumer group with only classic members can become a classic group."""
        return self.migration_policy in ("downgrade", "bidirectional")
