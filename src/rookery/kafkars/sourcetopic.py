"""A topic and its start position, in the form of kafkars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from rookery.consumer.positions import Position
from rookery.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic and its start position."""

    name: str
    policy: str = "latest"
    """earliest, latest, committed, relative_time or absolute_time."""
    time_ms: int | None = None
    """The age in milliseconds (relative_time), or milliseconds since 1970 (absolute_time)."""

    def __post_init__(self) -> None:
        if self.policy not in _POLICIES:
            raise ConfigError(
                f"{self.name}: policy {self.policy!r}: choose from {', '.join(_POLICIES)}"
            )
        if (self.time_ms is None) == self.policy.endswith("_time"):
            raise ConfigError(
                f"{self.name}: time_ms={self.time_ms}: for the policies relative_time and "
                f"absolute_time, and not for {self.policy}"
            )
        if self.time_ms is not None and self.time_ms < 0:
            raise ConfigError(f"{self.name}: time_ms={self.time_ms}: must be 0 or more")

    @staticmethod
    def from_earliest(name: str) -> SourceTopic:
        """Start at the log start offset."""
        return SourceTopic(name, "earliest")

    @staticmethod
    def from_latest(name: str) -> SourceTopic:
        """Start at the current log end."""
        return SourceTopic(name, "latest")

    @staticmethod
    def from_committed(name: str) -> SourceTopic:
        """Start at the committed offset of the group `group.id`, or at the log start if none."""
        return SourceTopic(name, "committed")

    @staticmethod
    def from_relative_time(name: str, time_ms: int) -> SourceTopic:
        """Start at the first record that is at most the given number of milliseconds old."""
        return SourceTopic(name, "relative_time", time_ms)

    @staticmethod
    def from_absolute_time(name: str, time_ms: int) -> SourceTopic:
        """Start at the first record that is not older than a time in milliseconds since 1970."""
        return SourceTopic(name, "absolute_time", time_ms)

    def position(self) -> Position:
        """Return the start position in the form that the stream accepts."""
        time_ms = self.time_ms or 0
        match self.policy:
            case "earliest":
                return "earliest"
            case "committed":
                return "committed"
            case "relative_time":
                return timedelta(milliseconds=time_ms)
            case "absolute_time":
                return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=time_ms)
            case _:
                return "latest"


_POLICIES: Final = ("earliest", "latest", "committed", "relative_time", "absolute_time")


class AnySourceTopic(Protocol):
    """A source topic of any library that has these attributes, such as kafkarrow's."""

    @property
    def name(self) -> str:
        """The topic's name."""

    @property
    def policy(self) -> str:
        """The start policy."""

    @property
    def time_ms(self) -> int | None:
        """The time, for policies that need one."""


def validate_source_topic(topic: AnySourceTopic | Mapping[str, Any]) -> None:
    """Check a source topic.

    Raises:
        ValueError: its policy is unknown, or its time does not fit the policy.
    """
    try:
        source_topic(topic)
    except ConfigError as error:
        raise ValueError(str(error)) from error


def source_topic(topic: AnySourceTopic | Mapping[str, Any]) -> SourceTopic:
    """Convert to our type; like kafkarrow, ignore a time that the policy does not use.

    Raises:
        ConfigError: a mapping has other keys, or the policy and the time do not fit.
    """
    if isinstance(topic, SourceTopic):
        return topic
    if isinstance(topic, Mapping):
        unknown = sorted(topic.keys() - {"name", "policy", "time_ms"})
        if unknown or "name" not in topic:
            raise ConfigError(f"topics: {dict(topic)}: use the keys name, policy and time_ms")
        name, policy = topic["name"], topic.get("policy", "latest")
        time_ms = topic.get("time_ms")
    else:
        name, policy, time_ms = topic.name, topic.policy, topic.time_ms
    return SourceTopic(name, policy, time_ms if policy.endswith("_time") else None)


def check_topics(sources: Sequence[SourceTopic]) -> None:
    """Check that there are topics, and that each is named once.

    Raises:
        ConfigError: there are none, or a topic is named twice.
    """
    if not sources:
        raise ConfigError("topics: name one at least")
    names = [source.name for source in sources]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"topics: {', '.join(twice)} is named twice")
