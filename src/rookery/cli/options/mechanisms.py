"""The SCRAM mechanisms that `rookery users` commands name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rookery.client.users import ScramMechanism

DEFAULT_MECHANISMS: Final = "SCRAM-SHA-256,SCRAM-SHA-512"
"""Both, so that every client can log in."""


def read_mechanisms(text: str) -> list[ScramMechanism]:
    """Read names with commas between.

    Raises:
        ConfigError: there is none, or one is unknown.
    """
    from rookery.client.users import ScramMechanism
    from rookery.errors import ConfigError

    known = {one.text: one for one in ScramMechanism}
    names = [name.strip().upper() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ConfigError(f"--mechanisms: {text!r} must name some of {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(names)]
