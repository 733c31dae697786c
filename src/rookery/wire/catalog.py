"""Every API that we have a definition of, by key: the files of `wire/messages`, found by a look.

Adding an API is adding a file there; nothing is listed twice.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from typing import Any

from rookery.wire import messages
from rookery.wire.message import Api


@cache
def apis() -> dict[int, Api[Any, Any]]:
    """Return all APIs by key, in order of key."""
    found: dict[int, Api[Any, Any]] = {}
    for module in pkgutil.iter_modules(messages.__path__):
        definition = import_module(f"{messages.__name__}.{module.name}")
        api = getattr(definition, module.name.upper())
        if api.key in found:
            raise TypeError(f"{api.name} and {found[api.key].name} both claim key {api.key}")
        found[api.key] = api
    return dict(sorted(found.items()))
