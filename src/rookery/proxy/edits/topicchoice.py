"""The option `topics` of filters: which topics a filter is for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from rookery.errors import ApiError, ConfigError
from rookery.proxy.edits.topicnames import TopicNames
from rookery.service.namepattern import NamePattern
from rookery.wire.message import ZERO_UUID

TOPICS: Final = "Regular expressions (RE2) for whole names; by default, all topics."
_REMEMBERED: Final = 10_000


class TopicChoice:
    """The topics whose whole names match one of some patterns; all, without patterns."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Read the option.

        Raises:
            ConfigError: it is not a list of patterns.
        """
        self.names = TopicNames()
        self.is_all = "topics" not in options
        texts = [] if self.is_all else read_texts(options, "topics")
        self._patterns = read_patterns(texts, "topics")
        self.has = lru_cache(_REMEMBERED)(self._has)
        """Return whether a topic is chosen, by its name."""

    def find_missing(self, ids: Iterable[bytes]) -> list[bytes]:
        """Return the ids whose names must be found before the choice is known."""
        return [] if self.is_all else self.names.find_missing(ids)

    def name(self, name: str | None, topic_id: bytes) -> str | None:
        """Return the name of a topic; empty if none is needed, None if it is not known."""
        if name or self.is_all or topic_id == ZERO_UUID:
            return name or ""
        return self.names.get(topic_id)

    def _has(self, name: str) -> bool:
        return self.is_all or any(pattern.matches(name) for pattern in self._patterns)


def read_patterns(texts: Iterable[str], option: str) -> list[NamePattern]:
    """Compile the patterns of an option.

    Raises:
        ConfigError: one is invalid.
    """
    try:
        return [NamePattern(text) for text in texts]
    except ApiError as error:
        raise ConfigError(f"{option}: {error}") from error


def read_texts(options: Mapping[str, Any], option: str) -> list[str]:
    """Return an option that is a list of texts; empty by default.

    Raises:
        ConfigError: it is something else.
    """
    values = options.get(option, [])
    if not isinstance(values, list | tuple) or not all(isinstance(each, str) for each in values):
        raise ConfigError(f"{option}: must be a list of texts")
    return list(values)


def read_text(options: Mapping[str, Any], option: str, default: str | None = None) -> str:
    """Return an option that is a text.

    Raises:
        ConfigError: it is missing or something else.
    """
    value = options.get(option, default)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"set the option {option} to a text")
    return value


def read_choice(
    options: Mapping[str, Any], option: str, choices: Iterable[str], default: str | None = None
) -> str:
    """Return an option that is one of several texts.

    Raises:
        ConfigError: it is missing or something else.
    """
    value = options.get(option, default)
    known = list(choices)
    if value not in known:
        raise ConfigError(f"{option}: must be one of {', '.join(known)}")
    return str(value)
