"""Refuses files with secrets that other users of the host can read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from rookery.errors import ConfigError

_OTHERS: Final = 0o077


def check_private(path: Path, setting: str) -> None:
    """Check that only the owner of a file can read it.

    Raises:
        ConfigError: others can, or there is no such file.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}", name=setting) from error
    if mode & _OTHERS:
        raise ConfigError(
            f"{path}: other users can read it; set its mode to 0600 (chmod 600)", name=setting
        )
