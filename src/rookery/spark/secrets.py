"""Keeps secrets out of options, which Spark shows in plans and logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rookery.errors import ConfigError
from rookery.model.location import find_secret

_URLS: Final = ("store", "cluster", "gapsTo")


def check_no_secrets(options: Mapping[str, str]) -> None:
    """Refuse addresses with a secret in them, where an option is an address.

    Raises:
        ConfigError: there is one; its value is not in the text.
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
