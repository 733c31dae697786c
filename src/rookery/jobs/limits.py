"""The settings of topics that upkeep goes by, as far as jobs need them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic

_WEEK_MS: Final = str(7 * 86_400_000)
# A topic's settings with the brokers' settings that they are inherited from, and the defaults.
_INHERITED: Final = {
    "cleanup.policy": ("log.cleanup.policy", "delete"),
    "retention.ms": ("log.retention.ms", _WEEK_MS),
    "retention.bytes": ("log.retention.bytes", "-1"),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms", "86400000"),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms", "0"),
}


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """What retention and compaction ask of a topic's settings; times in milliseconds."""

    is_deleted: bool
    is_compacted: bool
    retention_ms: int
    retention_bytes: int
    delete_retention_ms: int
    min_compaction_lag_ms: int
    # A job is asked for: whatever may be compacted is due, however little it is.
    max_compaction_lag_ms: int = 0
    min_cleanable_dirty_ratio: float = 0.0
    segment_bytes: int = 1
    segment_ms: int = 0


def limits_of(state: State, topic: Topic) -> TopicLimits:
    """Return the settings in force: the topic's own, else those of all brokers, else defaults."""
    policy = _setting(state, topic, "cleanup.policy")
    return TopicLimits(
        is_deleted="delete" in policy,
        is_compacted="compact" in policy,
        retention_ms=int(_setting(state, topic, "retention.ms")),
        retention_bytes=int(_setting(state, topic, "retention.bytes")),
        delete_retention_ms=int(_setting(state, topic, "delete.retention.ms")),
        min_compaction_lag_ms=int(_setting(state, topic, "min.compaction.lag.ms")),
    )


def _setting(state: State, topic: Topic, name: str) -> str:
    synonym, default = _INHERITED[name]
    own = topic.configs.get(name)
    inherited = state.broker_configs.get("", {}).get(synonym)
    return own if own is not None else inherited if inherited is not None else default
