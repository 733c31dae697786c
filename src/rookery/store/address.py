"""Parses the URL of an object store: bucket, prefix, options and timeouts."""

from __future__ import annotations

import asyncio
import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from rookery.errors import ConfigError
from rookery.store.port import check_key

# A store answers all but one in some thousands of small requests within a second. Ten seconds mean
# that the connection is dead. A large object gets more time, as if the connection had a throughput
# of `BYTES_PER_MS`.
TIMEOUT_MS: Final = 10_000
# Longer than a usual outage of a store, and shorter than the time that a producer waits
# (delivery.timeout.ms, two minutes).
DEADLINE_MS: Final = 60_000
BYTES_PER_MS: Final = 8 * 1024 * 1024 // 1000

_MAX_MS: Final = 3_600_000
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")


class Patience(NamedTuple):
    """How long to wait for a store."""

    timeout_ms: int = TIMEOUT_MS
    """For one attempt of a small request."""
    deadline_ms: int = DEADLINE_MS
    """For all attempts: none starts later."""

    def limit(self, size: int = 0) -> asyncio.Timeout:
        """Return a context that raises TimeoutError if moving `size` bytes takes too long."""
        return asyncio.timeout((self.timeout_ms + size // BYTES_PER_MS) / 1000)


class StoreAddress(NamedTuple):
    """The location of a store and how to reach it."""

    name: str
    """The URL without its options, which may be secret; it may be shown."""
    bucket: str
    prefix: str
    options: dict[str, str]
    """Options of the client library: region, endpoint, keys and others."""
    patience: Patience


def parse(url: str) -> StoreAddress:
    """Parse a URL such as `s3://bucket/prefix?region=eu-west-1&timeout_ms=5000`.

    Raises:
        ConfigError: it has no bucket, or an option is given twice or out of range.
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
        raise ConfigError(f"store {name!r}: the prefix is not a path: {error}") from None


def _options(name: str, query: str) -> dict[str, str]:
    # A plus is taken literally: secrets in base64 contain it, and options have no spaces.
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
