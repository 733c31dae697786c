"""Addresses and options that may hold secrets, as text that does not show them.

`str`, `repr` and formatting show such a text without its secrets, so that none gets into a message,
a log or the `repr` of what holds it. `reveal` returns all of it. Where text is expected it works as
text: methods of `str` see all of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Self
from urllib.parse import parse_qsl, urlsplit

HIDDEN: Final = "***"
"""Stands for a secret."""

# What the names have in them that clients of object stores, catalogs and etcd have for secrets, …
_WORDS: Final = ("secret", "token", "password", "credential", "signature")
# … or at their end, …
_ENDS: Final = ("_key", "_key_base64", "-key")
# … but not if they say where to find one.
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
        """Take a text, which may be such a one already."""
        return super().__new__(cls, text.reveal() if isinstance(text, Secret) else text)

    @property
    def shown(self) -> str:
        """What may be shown of it."""
        return HIDDEN if len(self) else ""

    def reveal(self) -> str:
        """Return all of it."""
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
        """The same with its secrets hidden."""
        plain = _PASSWORD.sub(rf"\1:{HIDDEN}@", self.reveal())
        return _OPTION.sub(_hidden, plain)


def _hidden(option: re.Match[str]) -> str:
    name = option[1]
    return f"{name}={HIDDEN}" if is_secret(name) else option[0]


def hide_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return options whose values do not show secrets: all of it, or those of an address."""
    return {
        name: Secret(value) if is_secret(name) else Location(value)
        for name, value in options.items()
    }
