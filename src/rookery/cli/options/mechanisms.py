"""The SCRAM mechanisms that `rookery users` commands name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rookery.security.credential import ScramMechanism

DEFAULT_MECHANISMS: Final = "SCRAM-SHA-256,SCRAM-SHA-512"
"""Both, so that every client can log in."""


def read_mechanisms(text: str) -> list[ScramMechanism]:
    """Read names with commas between.

    Raises:
        ConfigError: there is none, or one is unknown.
    """
    from rookery.errors import ConfigError
    from rookery.security.credential import SCRAM_MECHANISMS

    names = [name.strip().upper() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in SCRAM_MECHANISMS]
    if unknown or not names:
        raise ConfigError(f"--mechanisms: {text!r} must name some of {', '.join(SCRAM_MECHANISMS)}")
    return [SCRAM_MECHANISMS[name] for name in dict.fromkeys(names)]
