"""The settings that topics inherit from Kafka's brokers, which a Rookery cluster does not know.

A topic's own settings are in the metadata. Other settings come from the broker: from its dynamic
settings, which are also in the metadata, or from its `server.properties`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from rookery.errors import ConfigError
from rookery.formats.kraft.image import BROKER, MetadataImage

DEFAULT_RETENTION_MS: Final = 7 * 86_400_000
"""The default retention, in Kafka and in Rookery."""

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
"""A topic's setting, and the broker settings it defaults to: the first one that is set applies."""


def read_inherited(
    image: MetadataImage, node_id: int | None, properties: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings that topics inherit from their broker.

    Args:
        image: the cluster's metadata, with the dynamic settings of brokers.
        node_id: the owner of the directory.
        properties: the broker's `server.properties`.

    Raises:
        ConfigError: a value that must be a number is not.
    """
    configs = {}
    for values in (
        properties,
        image.configs.get((BROKER, ""), {}),
        image.configs.get((BROKER, str(node_id)), {}),
    ):
        for name, synonyms in _SYNONYMS.items():
            for synonym, convert in synonyms:
                if synonym in values:
                    configs[name] = _convert(synonym, values[synonym], convert)
                    break
    return configs


def _convert(name: str, value: str, convert: Callable[[str], str]) -> str:
    try:
        return convert(value.strip())
    except ValueError as error:
        raise ConfigError(f"{name}={value!r}: is not a number") from error


def keeps_for(configs: Mapping[str, str]) -> int:
    """Return how long a topic with these settings keeps its records; -1: forever."""
    if "delete" not in configs.get("cleanup.policy", "delete"):
        return -1
    try:
        return int(configs.get("retention.ms", DEFAULT_RETENTION_MS))
    except ValueError:
        return DEFAULT_RETENTION_MS
