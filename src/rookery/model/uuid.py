"""Kafka's text form of 16-byte ids: URL-safe base64 without padding, 22 characters."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

from rookery.errors import ConfigError

ZERO = bytes(16)
"""The id that stands for "none" on the wire."""


def random_uuid(draw: Callable[[int], bytes]) -> bytes:
    """Draw a new id; its text never begins with a hyphen, so that commands accept it.

    Args:
        draw: returns a number of random bytes.
    """
    while True:
        value = draw(16)
        if value != ZERO and not uuid_text(value).startswith("-"):
            return value


def uuid_text(value: bytes) -> str:
    """Format 16 bytes as Kafka's tools print a topic, cluster or directory id."""
    if len(value) != 16:
        raise ValueError(f"an id has 16 bytes, not {len(value)}")
    return base64.urlsafe_b64encode(value)[:22].decode("ascii")


def parse_uuid_text(text: str) -> bytes:
    """Parse the text form of an id to 16 bytes.

    Raises:
        ConfigError: the text is not the canonical form of an id.
    """
    if len(text) == 22:
        try:
            value = base64.b64decode(f"{text}==", altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            value = b""
        # Four spare bits at the end would allow 16 texts for one id.
        if len(value) == 16 and uuid_text(value) == text:
            return value
    raise ConfigError(f"{text[:40]!r} is not an id: expected 22 characters of A-Z a-z 0-9 - _")
