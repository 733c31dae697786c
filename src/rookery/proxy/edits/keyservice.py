"""Where keys for encryption come from: a file, or a key management service of another package.

A service is an entry point of the group `rookery.keys`: a class that gets its options, and has the
methods of `KeyService`.
"""

from __future__ import annotations

import base64
import binascii
import tomllib
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from rookery.clock import Random
from rookery.errors import ConfigError, Corrupt
from rookery.proxy.access.privatesecret import check_private
from rookery.proxy.access.watchedfile import WatchedFile
from rookery.proxy.edits.envelope import KEY_BYTES, DataKey

GROUP: Final = "rookery.keys"
"""The group of entry points of key services."""
_SALT_BYTES: Final = 16
_MAX_NAME: Final = 255
_SETTING: Final = "keys_file"


class KeyService(Protocol):
    """Creates and unwraps data keys."""

    async def create(self) -> DataKey:
        """Create a data key, and wrap it.

        Raises:
            Unavailable: the service cannot be reached.
        """

    async def unwrap(self, name: str, wrapped: bytes) -> bytes:
        """Return the data key that a key of this name has wrapped.

        Raises:
            Corrupt: there is no such key, or it has not wrapped this data key.
            Unavailable: the service cannot be reached.
        """

    async def is_current(self, name: str) -> bool:
        """Return whether new values are still to be encrypted under a key."""


class KeyRing(NamedTuple):
    """The keys of a file."""

    active: str
    keys: dict[str, bytes]


class KeyFile:
    """Keys from a TOML file with mode 0600.

        active = "2026"

        [keys]
        2025 = "base64 of 32 bytes"
        2026 = "…"

    A data key is derived from the named key and a random salt, which is its wrapped form.
    """

    def __init__(self, path: str, random: Random) -> None:
        """Read the file.

        Raises:
            ConfigError: it cannot be used, or others can read it.
        """
        self._file = WatchedFile(Path(path), read_keys)
        self._random = random

    async def create(self) -> DataKey:
        """Derive a data key from the active key."""
        ring = self._file.value
        salt = self._random.token(_SALT_BYTES)
        return DataKey(ring.active, salt, _derive(ring.keys[ring.active], salt, ring.active))

    async def unwrap(self, name: str, wrapped: bytes) -> bytes:
        """Derive a data key again; a changed file is read for a name that is not known."""
        if name not in self._file.value.keys:
            self._file.look()
        key = self._file.value.keys.get(name)
        if key is None:
            raise Corrupt(f"the file of keys has no key {name!r}")
        return _derive(key, wrapped, name)

    async def is_current(self, name: str) -> bool:
        """Return whether a key is the active one; a changed file is read."""
        self._file.look()
        return name == self._file.value.active


def open_key_service(options: Mapping[str, Any], random: Random) -> KeyService:
    """Return the key service that the options of a filter name.

    Raises:
        ConfigError: there is none, or its options cannot be used.
    """
    path, kind = options.get("keys_file"), options.get("key_service")
    if isinstance(path, str) and path and kind is None:
        return KeyFile(path, random)
    if path is not None or not isinstance(kind, str):
        raise ConfigError("set either keys_file or key_service, to a text")
    for point in entry_points(group=GROUP):
        if point.name == kind:
            service: KeyService = point.load()(dict(options.get("key_service_options", {})))
            return service
    known = ", ".join(sorted(point.name for point in entry_points(group=GROUP))) or "none"
    raise ConfigError(f"key_service: there is no key service {kind!r}; installed: {known}")


def read_keys(path: Path) -> KeyRing:
    """Read a file of keys.

    Raises:
        ConfigError: it cannot be used, or others can read it.
    """
    check_private(path, _SETTING)
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}", name=_SETTING) from error
    texts = content.get("keys")
    if not isinstance(texts, dict) or not texts:
        raise ConfigError(f"{path}: add a table [keys] with a key", name=_SETTING)
    keys = {name: _read_key(path, name, text) for name, text in texts.items()}
    active = content.get("active")
    if not isinstance(active, str) or active not in keys:
        raise ConfigError(f"{path}: set active to the name of a key", name=_SETTING)
    return KeyRing(active, keys)


def _read_key(path: Path, name: str, text: object) -> bytes:
    # Its value is never shown.
    try:
        key = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(
            f"{path}: key {name!r} must be {KEY_BYTES} bytes in base64; create one with "
            f"`openssl rand -base64 {KEY_BYTES}`",
            name=_SETTING,
        )
    if len(name.encode()) > _MAX_NAME:
        raise ConfigError(f"{path}: the name of a key is longer than 255 bytes", name=_SETTING)
    return key


def _derive(key: bytes, salt: bytes, name: str) -> bytes:
    info = b"rookery data key " + name.encode()
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=info).derive(key)
