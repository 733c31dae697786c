"""Addresses and options that may hold secrets, as text that hides them.

`str`, `repr` and formatting show such a text without its secrets, so that none gets into a
message, a log or the `repr` of an object that contains it. `reveal` returns the full text. Methods
of `str` also work on the full text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Self
from urllib.parse import parse_qsl, urlsplit

HIDDEN: Final = "***"
"""The placeholder for a secret."""

# Secret options of object stores, catalogs and etcd have names that contain one of these, …
_WORDS: Final = ("secret", "token", "password", "credential", "signature")
# … or end in one of these, …
_ENDS: Final = ("_key", "_key_base64", "-key")
# … but not if the name says where the secret is stored.
_PUBLIC: Final = ("_file", "_path", "_uri", "application_credentials")
_WHOLE: Final = frozenset({"sig", "pwd", "pass"})

_OPTION: Final = re.compile(r"(?<=[?&])([^=&#]*)=([^&#]*)")
_PASSWORD: Final = re.compile(r"(?<=://)([^/?#@]*?):([^/?#]*)@")


def is_secret(name: str) -> bool:
    """Whether the value of an option with this name is a secret."""
    name = name.lower()
    is_named = name in _WHOLE or name.endswith(_ENDS) or any(word in name for word in _WORDS)
    return is_named and not name.endswith(_PUBLIC)


def find_secret(url: str) -> str:
    """Return the name of the first secret of a URL; empty if it has none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""  # opening it says why
    if _PASSWORD.search(url):
        return "password"
    names = [name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
    return next((name for name in names if is_secret(name)), "")


class Secret(str):
    """A text that is never shown."""

    __slots__ = ()

    def __new__(cls, text: str) -> Self:
        """Wrap a text, which may already be wrapped."""
        return super().__new__(cls, text.reveal() if isinstance(text, Secret) else text)

    @property
    def shown(self) -> str:
        """The part of the text that may be shown."""
        return HIDDEN if len(self) else ""

    def reveal(self) -> str:
        """Return the full text."""
        return str.__str__(self)

    def __repr__(self) -> str:
        return repr(self.shown)

    def __str__(self) -> str:
        return self.shown

    def __format__(self, spec: str) -> str:
        return format(self.shown, spec)


class Location(Secret):
    """A path or URL; shown without its password and without the values of secret options."""

    __slots__ = ()

    @property
    def shown(self) -> str:
        """The text with its secrets hidden."""
        plain = _PASSWORD.sub(rf"\1:{HIDDEN}@", self.reveal())
        return _OPTION.sub(_hide, plain)


def _hide(option: re.Match[str]) -> str:
    name = option[1]
    return f"{name}={HIDDEN}" if is_secret(name) else option[0]


def hide_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return options that hide secrets: whole secret values, and secrets inside addresses."""
    return {
        name: Secret(value) if is_secret(name) else Location(value)
        for name, value in options.items()
    }
