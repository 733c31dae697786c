"""The topic settings for retention and compaction that jobs need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rookery.cluster.state.state import State
from rookery.cluster.state.topics import Topic

_WEEK_MS: Final = str(7 * 86_400_000)
# Topic settings, with the broker settings from which they are inherited, and the defaults.
_INHERITED: Final = {
    "cleanup.policy": ("log.cleanup.policy", "delete"),
    "retention.ms": ("log.retention.ms", _WEEK_MS),
    "retention.bytes": ("log.retention.bytes", "-1"),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms", "86400000"),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms", "0"),
}


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """A topic's settings for retention and compaction; times in milliseconds."""

    is_deleted: bool
    is_compacted: bool
    retention_ms: int
    retention_bytes: int
    delete_retention_ms: int
    min_compaction_lag_ms: int
    # The job was requested explicitly, so everything that may be compacted is due.
    max_compaction_lag_ms: int = 0
    min_cleanable_dirty_ratio: float = 0.0
    segment_bytes: int = 1
    segment_ms: int = 0


def limits_of(state: State, topic: Topic) -> TopicLimits:
    """Return the effective settings: the topic's own, the cluster-wide ones, or the defaults."""
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
