"""Options as Spark passes them: names, parsing of values, and a check for secrets.

A view in SQL is read and written, so it has options for both. The reader ignores the writer's
options, and the writer ignores the reader's. Names that neither knows are refused. Options must not
contain secrets, because Spark shows them in plans and logs. Error messages name the option and the
expected form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, TypeGuard

from rookery.direct.offsets import PerPartition
from rookery.errors import ConfigError
from rookery.model.location import find_secret

SUBSCRIBE: Final = ("subscribe", "subscribePattern", "assign")
ENDS: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
PACE: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
)
BATCH_ONLY: Final = ("orderBy", "latestPerKey", "pushdown")
_PLACE: Final = ("store", "cluster", "namespace", "data")
# Locations that can only be read. A writer that ignored them would write to another location.
_READ_PLACE: Final = ("layout", "logDir")
_READ: Final = (
    *SUBSCRIBE,
    *("startingOffsets", "startingTimestamp"),
    *("startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *ENDS,
    *PACE,
    *BATCH_ONLY,
    *("minPartitions", "maxRecordsPerPartition", "columns", "includeHeaders"),
    *("failOnDataLoss", "onDataLoss", "gapsTo", "pinFor", "resumeFrom"),
    *("kafka.isolation.level", "kafka.group.id", "groupIdPrefix"),
)
_WRITE: Final = (
    *("topic", "compression", "createTopic", "batchBytes", "objectBytes", "uploads"),
    *("sinkId", "batchId", "takeOver", "sourceOffsets"),
)

READ_NAMES: Final = (*_PLACE, *_READ_PLACE, *_READ)
"""The options of a reader."""
WRITE_NAMES: Final = (*_PLACE, *_WRITE)
"""The options of a writer."""
NOT_READ: Final = frozenset(name.lower() for name in _WRITE)
"""Options that a reader ignores, in lower case."""
NOT_WRITTEN: Final = frozenset(name.lower() for name in _READ)
"""Options that a writer ignores, in lower case."""

_URLS: Final = ("store", "cluster", "gapsTo")

# The number of digits is limited so that all values fit in 64 bits.
_DURATION: Final = re.compile(r"([0-9]{1,10})\s*(ms|s|m|min|h|d)?")
_WHOLE: Final = re.compile(r"[0-9]{1,19}")
_MOST: Final = (1 << 63) - 1
_SHOWN: Final = 200
_UNITS_MS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


def check_no_secrets(options: Mapping[str, str]) -> None:
    """Refuse options whose address contains a secret.

    Raises:
        ConfigError: an address contains a secret; the text does not include it.
    """
    given = {name.lower(): value for name, value in options.items()}
    for name in _URLS:
        secret = find_secret(given.get(name.lower(), ""))
        if secret:
            raise ConfigError(
                f"{name}: has a secret in it ({secret}), and Spark shows options in plans and "
                "logs: write the address into a table [clusters.NAME] of rookery.toml and name it "
                "with cluster=NAME, or have the secret in the environment (AWS_SECRET_ACCESS_KEY)"
            )


class RawOptions:
    """Options by their canonical names."""

    def __init__(self, values: dict[str, str]) -> None:
        self.values = values

    def text(self, name: str) -> str:
        """Return an option's text; empty if it is not given."""
        return self.values.get(name, "").strip()

    def flag(self, name: str, *, default: bool) -> bool:
        """Return whether an option is true."""
        value = self.text(name).lower() or str(default).lower()
        if value not in {"true", "false"}:
            raise ConfigError(f"{name}={value!r}: write true or false")
        return value == "true"

    def number(self, name: str) -> int | None:
        """Return a positive integer; None if the option is not given."""
        value = self.text(name)
        if not value:
            return None
        number = _whole(value)
        if not number:
            raise ConfigError(f"{name}={shorten(value)}: must be a whole number from 1 on")
        return number

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """Return one of the allowed words; the first if the option is not given."""
        value = self.text(name) or allowed[0]
        if value not in allowed:
            raise ConfigError(f"{name}={value!r}: choose from {', '.join(allowed)}")
        return value

    def time(self, name: str) -> int | None:
        """Return a timestamp in milliseconds; None if it is not given."""
        value = self.text(name)
        if not value:
            return None
        number = _whole(value)
        if number is None:
            raise ConfigError(f"{name}={shorten(value)}: must be milliseconds since 1970-01-01 UTC")
        return number

    def duration(self, name: str, default_ms: int) -> int:
        """Return a duration in milliseconds."""
        value = self.text(name)
        if not value:
            return default_ms
        match = _DURATION.fullmatch(value)
        if match is None:
            raise ConfigError(f"{name}={shorten(value)}: write it as 30s, 15m or 1h")
        return int(match[1]) * _UNITS_MS[match[2] or "ms"]


def numbers(name: str, value: str, least: int) -> PerPartition:
    """Parse a number for each partition: {"topic": {"0": 23}}."""
    wrong = ConfigError(
        f'{name}={shorten(value)}: write earliest, latest or JSON such as {{"topic": {{"0": 23}}}}'
    )
    by_topic: dict[str, dict[int, int]] = {}
    for topic, many in json_object(name, value).items():
        if not isinstance(many, dict):
            raise wrong
        by_topic[topic] = {}
        for text, number in many.items():
            index = _whole(text)
            if index is None or not is_whole(number) or not least <= number <= _MOST:
                raise wrong
            by_topic[topic][index] = number
    if not by_topic:
        raise wrong
    return by_topic


def json_object(name: str, value: str) -> dict[str, object]:
    """Parse an option whose value is a JSON object with topics as keys."""
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise ConfigError(f"{name}={shorten(value)}: not JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise ConfigError(f"{name}={shorten(value)}: must be a JSON object with topics in it")
    return parsed


def _whole(text: str) -> int | None:
    """Return a non-negative integer that fits in 64 bits; None if the text is not one."""
    number = int(text) if _WHOLE.fullmatch(text) else -1
    return number if 0 <= number <= _MOST else None


def shorten(value: str) -> str:
    """Return an option's value for a message, truncated if it is long."""
    return repr(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!r}…"


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a JSON value is an integer."""
    return isinstance(value, int) and not isinstance(value, bool)
