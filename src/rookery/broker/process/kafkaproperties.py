"""The values of Kafka's `server.properties`, with a record of the keys that are used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rookery.errors import ConfigError, Corrupt
from rookery.formats.logfile.properties import parse_properties

_MAX_BYTES: Final = 1024 * 1024


@dataclass(slots=True)
class KafkaProperties:
    """The values by key; reading one marks it as used."""

    path: Path
    values: Mapping[str, str]
    warnings: list[str] = field(default_factory=list)
    """What the user should know, one line each."""
    _used: set[str] = field(default_factory=set)

    def get(self, key: str, default: str = "") -> str:
        """Return a value.

        Raises:
            ConfigError: it comes from a configuration provider.
        """
        self._used.add(key)
        value = self.values.get(key, default).strip()
        if value.startswith("${"):
            raise self.refusal(key, "configuration providers are not supported; write the value")
        return value

    def of_listener(self, listener: str, key: str, default: str = "") -> str:
        """Return a value for one listener; without one of its own, that of the broker."""
        own = self.own_key(listener, key)
        if own in self.values:
            self._used.add(key)
            return self.get(own)
        return self.get(key, default)

    @staticmethod
    def own_key(listener: str, key: str) -> str:
        """Return the key of a value for one listener alone."""
        return f"listener.name.{listener.lower()}.{key}"

    def find_unused(self, keys: Iterable[str]) -> list[str]:
        """Return the keys that were never read."""
        return [key for key in keys if key not in self._used]

    def refusal(self, key: str, problem: str) -> ConfigError:
        """Return the error of a value that cannot be used; values can be secret, so not its own."""
        return ConfigError(f"{self.path}: {key}: {problem}")

    def warn(self, text: str) -> None:
        """Add a line for the user."""
        self.warnings.append(f"{self.path}: {text}")


def read_properties(path: Path) -> KafkaProperties:
    """Read a `server.properties`.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{path}: above {_MAX_BYTES} bytes; is this Kafka's server.properties?")
    try:
        # Java's encoding of such files.
        return KafkaProperties(path, parse_properties(data.decode("iso-8859-1"), str(path)))
    except Corrupt as error:
        raise ConfigError(str(error)) from error
