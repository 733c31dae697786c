"""Every API with a definition, by key: the files of `wire/messages`.

The folder is scanned, so a new API needs only a new file.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import Any, Final

from rookery.wire import messages
from rookery.wire.message import Api

FIRST_OWN_KEY: Final = 9_000
"""APIs that Kafka does not have take keys from here on; Kafka's own are far below."""


@cache
def apis() -> dict[int, Api[Any, Any]]:
    """Return all APIs by key, in order of key."""
    by_key: dict[int, Api[Any, Any]] = {}
    for module in pkgutil.iter_modules(messages.__path__):
        definition = import_module(f"{messages.__name__}.{module.name}")
        api = getattr(definition, module.name.upper())
        if api.key in by_key:
            raise TypeError(f"{api.name} and {by_key[api.key].name} both claim key {api.key}")
        by_key[api.key] = api
    return dict(sorted(by_key.items()))


def kafka_apis() -> dict[int, Api[Any, Any]]:
    """Return the APIs that Kafka has, too: they must be the same there and here."""
    return {key: api for key, api in apis().items() if key < FIRST_OWN_KEY}
