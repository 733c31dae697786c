"""From the URL of an object store to what it says: bucket, prefix, options and patience."""

from __future__ import annotations

import asyncio
import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from rookery.errors import ConfigError
from rookery.store.port import check_key

# A store answers a small request within a second, but for one in some thousands. Ten say that the
# connection is dead; a large object gets more, as if the way to the store were no faster than
# `BYTES_PER_MS`.
TIMEOUT_MS: Final = 10_000
# Longer than a store's usual bad minute, and shorter than what a producer waits for
# (delivery.timeout.ms, two minutes).
DEADLINE_MS: Final = 60_000
BYTES_PER_MS: Final = 8 * 1024 * 1024 // 1000

_MAX_MS: Final = 3_600_000
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")


class Patience(NamedTuple):
    """How long to wait for a store."""

    timeout_ms: int = TIMEOUT_MS
    """For one attempt at a small request."""
    deadline_ms: int = DEADLINE_MS
    """For all attempts: none is begun later."""

    def limit(self, size: int = 0) -> asyncio.Timeout:
        """Return a context that ends with TimeoutError if moving so many bytes takes too long."""
        return asyncio.timeout((self.timeout_ms + size // BYTES_PER_MS) / 1000)


class StoreAddress(NamedTuple):
    """Where a store is and how it is reached."""

    name: str
    """The URL without its options, which may be secret: this may be shown."""
    bucket: str
    prefix: str
    options: dict[str, str]
    """What the client library is told: region, endpoint, keys and others."""
    patience: Patience


def parse(url: str) -> StoreAddress:
    """Take a URL such as `s3://bucket/prefix?region=eu-west-1&timeout_ms=5000` apart.

    Raises:
        ConfigError: it names no bucket, or an option is given twice or out of its range.
    """
    parts = urlsplit(url)
    bucket, prefix = parts.netloc, unquote(parts.path).strip("/")
    name = f"{parts.scheme}://{bucket}/{prefix}"
    if _BUCKET.fullmatch(bucket) is None or parts.fragment:
        raise ConfigError(f"store {name!r}: write {parts.scheme}://bucket/prefix?option=value")
    if prefix:
        _check_prefix(name, prefix)
    options = _options(name, parts.query)
    patience = Patience(
        _milliseconds(name, options, "timeout_ms", TIMEOUT_MS),
        _milliseconds(name, options, "deadline_ms", DEADLINE_MS),
    )
    return StoreAddress(name, bucket, prefix, options, patience)


def _check_prefix(name: str, prefix: str) -> None:
    try:
        check_key(prefix)
    except ValueError as error:
        raise ConfigError(f"store {name!r}: the prefix is no path: {error}") from None


def _options(name: str, query: str) -> dict[str, str]:
    # A plus is a plus: secrets in base64 have them, and nobody writes spaces here.
    pairs = parse_qsl(query.replace("+", "%2B"), keep_blank_values=True)
    options = dict(pairs)
    if len(options) != len(pairs):
        raise ConfigError(f"store {name!r}: an option is given twice")
    return options


def _milliseconds(name: str, options: dict[str, str], option: str, default: int) -> int:
    text = options.pop(option, str(default))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:12]) <= _MAX_MS:
        raise ConfigError(f"store {name!r}: {option} is {text[:20]!r}, not 1 to {_MAX_MS}")
    return int(text)
