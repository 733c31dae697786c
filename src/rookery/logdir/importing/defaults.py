"""What topics inherit from Kafka's brokers: settings that a cluster of ours would not know.

A topic's own settings are in the metadata. What it does not set itself comes from the broker: by
its dynamic settings, which are in the metadata too, or by its `server.properties`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from rookery.errors import ConfigError
from rookery.formats.kraft.image import BROKER, MetadataImage

DEFAULT_RETENTION_MS: Final = 7 * 86_400_000
"""How long records are kept if nobody says otherwise, by Kafka and by us."""

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000


def _plain(value: str) -> str:
    return value


def _times(factor: int) -> Callable[[str], str]:
    def convert(value: str) -> str:
        number = int(value)
        return str(number if number < 0 else number * factor)

    return convert


_SYNONYMS: Final[Mapping[str, tuple[tuple[str, Callable[[str], str]], ...]]] = {
    "retention.ms": (
        ("log.retention.ms", _plain),
        ("log.retention.minutes", _times(_MINUTE_MS)),
        ("log.retention.hours", _times(_HOUR_MS)),
    ),
    "retention.bytes": (("log.retention.bytes", _plain),),
    "cleanup.policy": (("log.cleanup.policy", _plain),),
    "segment.bytes": (("log.segment.bytes", _plain),),
    "segment.ms": (("log.roll.ms", _plain), ("log.roll.hours", _times(_HOUR_MS))),
    "max.message.bytes": (("message.max.bytes", _plain),),
    "message.timestamp.type": (("log.message.timestamp.type", _plain),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", _plain),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", _plain),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", _plain),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", _plain),),
}
"""A topic's setting, and the broker's that it defaults to: the first that is set counts."""


def inherited(
    image: MetadataImage, node_id: int | None, properties: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings that topics have by their broker.

    Args:
        image: the cluster's metadata, with dynamic settings of brokers.
        node_id: whose directory it is.
        properties: the broker's `server.properties`.

    Raises:
        ConfigError: a value that has to be a number is none.
    """
    found = {}
    for values in (
        properties,
        image.configs.get((BROKER, ""), {}),
        image.configs.get((BROKER, str(node_id)), {}),
    ):
        for name, synonyms in _SYNONYMS.items():
            for synonym, convert in synonyms:
                if synonym in values:
                    found[name] = _converted(synonym, values[synonym], convert)
                    break
    return found


def _converted(name: str, value: str, convert: Callable[[str], str]) -> str:
    try:
        return convert(value.strip())
    except ValueError as error:
        raise ConfigError(f"{name}={value!r}: is not a number") from error


def keeps_for(configs: Mapping[str, str]) -> int:
    """Tell how long a topic with these settings keeps its records; -1 for ever."""
    if "delete" not in configs.get("cleanup.policy", "delete"):
        return -1
    try:
        return int(configs.get("retention.ms", DEFAULT_RETENTION_MS))
    except ValueError:
        return DEFAULT_RETENTION_MS
