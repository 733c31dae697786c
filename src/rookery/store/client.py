"""What the clients of all object stores are told, and what they say about their options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from obstore.exceptions import BaseError

from rookery.errors import ConfigError
from rookery.store.address import StoreAddress
from rookery.store.clienterror import summary

if TYPE_CHECKING:  # The library has these names for type checkers alone.
    from obstore.store import ClientConfig, RetryConfig

NO_RETRIES: Final[RetryConfig] = {"max_retries": 0}
"""Attempts are made by `rookery.store.retry`."""


def client_options(address: StoreAddress) -> ClientConfig:
    """Return how connections are made."""
    options: ClientConfig = {
        "connect_timeout": timedelta(milliseconds=address.patience.timeout_ms),
        # Each attempt has a time of its own, by its size; this only ends what was forgotten.
        "timeout": timedelta(hours=1),
        # The endpoint's scheme decides, whether the URL or the environment names it.
        "allow_http": True,
    }
    endpoint = address.options.get("endpoint", address.options.get("base_url", "https://"))
    if not endpoint.startswith(("http://", "https://")):
        raise ConfigError(
            f"store {address.name!r}: the endpoint {endpoint[:80]!r} is not a URL; write "
            "http://host:port or https://host:port"
        )
    return options


@contextmanager
def wrong_options(address: StoreAddress) -> Iterator[None]:
    """Translate what a client says about its options when it is made."""
    try:
        yield
    except (BaseError, ValueError, TypeError) as error:
        raise ConfigError(f"store {address.name!r}: {summary(error)}") from None
