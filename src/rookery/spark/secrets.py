"""Keeps secrets out of options, which Spark shows in plans and logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from rookery.errors import ConfigError

_URLS: Final = ("store", "cluster", "gapsTo")
# What the names have in them that clients of object stores and of etcd have for secrets, …
_WORDS: Final = ("secret", "token", "password", "credential")
# … or at their end, …
_ENDS: Final = ("_key", "_key_base64")
# … but not if they say where to find one.
_PUBLIC: Final = ("_file", "_path", "_uri", "application_credentials")


def check_no_secrets(options: Mapping[str, str]) -> None:
    """Refuse addresses with a secret in them, where an option is an address.

    Raises:
        ConfigError: there is one; its value is not in the text.
    """
    given = {name.lower(): value for name, value in options.items()}
    for name in _URLS:
        secret = _secret_in(given.get(name.lower(), ""))
        if secret:
            raise ConfigError(
                f"{name}: has a secret in it ({secret}), and Spark shows options in plans and "
                "logs: write the address into a table [clusters.NAME] of rookery.toml and name it "
                "with cluster=NAME, or have the secret in the environment (AWS_SECRET_ACCESS_KEY)"
            )


def _secret_in(url: str) -> str:
    """Return what the first secret of a URL is called; empty if it has none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""  # who opens it tells why
    if ":" in parts.netloc.rpartition("@")[0]:
        return "password"
    names = [name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    return next((name for name in names if _is_secret(name)), "")


def _is_secret(name: str) -> bool:
    is_named = name.endswith(_ENDS) or any(word in name for word in _WORDS)
    return is_named and not name.endswith(_PUBLIC)
