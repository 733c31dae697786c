"""Start and end positions: words, times, offsets and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias, cast

from rookery.consumer.checkpoint import Checkpoint
from rookery.errors import ConfigError
from rookery.model.offset import EARLIEST, LATEST
from rookery.model.partition import TopicPartition

Word: TypeAlias = Literal["earliest", "latest", "now", "committed"]


@dataclass(frozen=True, slots=True)
class Offsets:
    """Offsets by topic and partition; partitions that are not named start at the earliest."""

    by_partition: Mapping[tuple[str, int], int]

    def __post_init__(self) -> None:
        for place, offset in self.by_partition.items():
            if offset < 0:
                raise ConfigError(f"offset {offset} of {place}: must be 0 or more")


Position: TypeAlias = Word | datetime | timedelta | Offsets | Checkpoint
"""A start or end position; a timedelta is relative to now, into the past."""
Positions: TypeAlias = Position | Mapping[str, Position]
"""One position for all topics, or one per topic name."""

_WORDS: Final = frozenset({"earliest", "latest", "now", "committed"})


@dataclass(frozen=True, slots=True)
class Spec:
    """A position as sources understand it; exactly one field is set."""

    offset: int | None = None
    """A number, EARLIEST or LATEST."""
    time_ms: int | None = None
    """The first record that is not older than this time."""
    is_committed: bool = False
    """The group's committed offset."""


def spec(position: Position, place: TopicPartition, now_ms: int) -> Spec:
    """Resolve a position for one partition.

    Raises:
        ConfigError: the position is not valid.
    """
    if isinstance(position, str):
        return _of_word(position)
    if isinstance(position, datetime):
        return Spec(time_ms=to_ms(position))
    if isinstance(position, timedelta):
        return Spec(time_ms=now_ms - position // timedelta(milliseconds=1))
    if isinstance(position, Offsets):
        return Spec(offset=position.by_partition.get((place.topic, place.partition), EARLIEST))
    if isinstance(position, Checkpoint):
        mark = position.partitions.get(place)
        return Spec(offset=EARLIEST if mark is None else mark.offset)
    raise ConfigError(
        f"{position!r} is not a position; use a word ({', '.join(sorted(_WORDS))}), a datetime "
        "with a time zone, a timedelta, Offsets or a Checkpoint"
    )


def of_topic(positions: Positions, topic: str, default: Position) -> Position:
    """Return the position of one topic."""
    if isinstance(positions, Mapping):
        return positions.get(topic, default)
    return positions


def start_ms(position: Position, now_ms: int) -> int | None:
    """Return the time before which rows are left out, if the position is a time."""
    if isinstance(position, datetime):
        return to_ms(position)
    if isinstance(position, timedelta):
        return now_ms - position // timedelta(milliseconds=1)
    return None


def to_ms(moment: datetime) -> int:
    """Return a time in milliseconds since 1970.

    Raises:
        ConfigError: it has no time zone, so it is ambiguous.
    """
    if moment.tzinfo is None:
        raise ConfigError(
            f"{moment.isoformat()} has no time zone; say which, such as datetime(…, tzinfo=UTC)"
        )
    # Integer arithmetic, since a float loses milliseconds for years far in the future.
    since = moment - datetime.fromtimestamp(0, moment.tzinfo)
    return since // timedelta(milliseconds=1)


def _of_word(word: str) -> Spec:
    if word not in _WORDS:
        raise ConfigError(f"{word!r} is not a position; choose from {', '.join(sorted(_WORDS))}")
    match cast("Word", word):
        case "earliest":
            return Spec(offset=EARLIEST)
        case "latest" | "now":
            return Spec(offset=LATEST)
        case "committed":
            return Spec(is_committed=True)
