"""Opens a store by URL: the scheme is the name of a module in `store/backends`."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Protocol, cast
from urllib.parse import urlsplit

from rookery.errors import ConfigError
from rookery.model.location import Location
from rookery.store.port import Store, StoreTraits

_BACKENDS: Final = "rookery.store.backends"


class StoreBackend(Protocol):
    """The interface of a module in `store/backends`."""

    def traits(self, url: str) -> StoreTraits:
        """Return the traits of the store that the URL names, without opening it."""

    def open(self, url: str) -> Store:
        """Open the store that the URL names, creating it if it is absent."""


def open_store(url: str) -> Store:
    """Open the store at a URL, such as `s3://bucket/prefix?region=…`, or in a folder.

    Raises:
        ConfigError: the URL cannot be used.
        Unavailable: the store cannot be reached.
    """
    url = as_url(url)
    return _backend(url).open(url)


def store_traits(url: str) -> StoreTraits:
    """Return the traits of the store at a URL or in a folder, without opening it.

    Raises:
        ConfigError: the URL cannot be used.
    """
    url = as_url(url)
    return _backend(url).traits(url)


def _backend(url: Location) -> StoreBackend:
    scheme = url.partition(":")[0]
    # Only letters: the scheme becomes part of a module's name.
    if re.fullmatch(r"[a-z][a-z0-9]*", scheme) is None:
        raise ConfigError(
            f"store {name_of(url)!r}: neither a folder nor a URL such as s3://bucket/prefix"
        )
    if find_spec(f"{_BACKENDS}.{scheme}") is None:
        raise ConfigError(f"store {name_of(url)!r}: there is no backend called {scheme!r}")
    return cast("StoreBackend", import_module(f"{_BACKENDS}.{scheme}"))


def is_url(location: str) -> bool:
    """Whether a location is a URL; if not, it is a path."""
    return bool(urlsplit(location).scheme)


def as_url(location: str) -> Location:
    """Return a location as the URL of a store; a location without a scheme is a folder."""
    if not location or is_url(location):
        return Location(location)
    return Location(Path(location).expanduser().absolute().as_uri())


def name_of(url: str) -> str:
    """Return a store's URL without its options, which may be secret."""
    return url.partition("?")[0]
