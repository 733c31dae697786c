"""Common options of the clients of all object stores, and errors about options."""

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
"""`rookery.store.retry` does the retries."""


def client_options(address: StoreAddress) -> ClientConfig:
    """Return the connection options."""
    options: ClientConfig = {
        "connect_timeout": timedelta(milliseconds=address.patience.timeout_ms),
        # Each attempt has its own timeout by size; this one only ends abandoned requests.
        "timeout": timedelta(hours=1),
        # The scheme of the endpoint decides, in the URL or in the environment.
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
    """Translate a client's errors about its options."""
    try:
        yield
    except (BaseError, ValueError, TypeError) as error:
        raise ConfigError(f"store {address.name!r}: {summary(error)}") from None
