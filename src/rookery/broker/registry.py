"""Which function answers which API: the files of `broker/apis`, found by a look.

    @handles(HEARTBEAT)
    async def heartbeat(call: Call, request: HeartbeatRequest) -> HeartbeatResponse: ...

The decorator ties both message types, so a wrong one fails type checking. A handler may be a plain
function (its answer is there at once), return a future, or be a coroutine function.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from rookery.broker import apis
from rookery.broker.call import Call
from rookery.wire.message import Api, Message

Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)

Handle = Callable[[Call, Req], "Awaitable[Res | None] | Res | None"]
"""Answers a request; None if no answer is wanted."""


class Route(NamedTuple):
    """An API, the versions that are served, and the function that serves them."""

    api: Api[Any, Any]
    versions: range
    handle: Handle[Any, Any]


_routes: dict[int, Route] = {}


def handles(
    api: Api[Req, Res], versions: range | None = None
) -> Callable[[Handle[Req, Res]], Handle[Req, Res]]:
    """Let a function answer an API, in all its versions or in those given."""

    def note(function: Handle[Req, Res]) -> Handle[Req, Res]:
        if api.key in _routes:
            raise TypeError(f"{api.name} has two handlers")
        _routes[api.key] = Route(api, versions or api.versions, function)
        return function

    return note


@cache
def routes() -> dict[int, Route]:
    """Return all routes by API key."""
    for module in pkgutil.iter_modules(apis.__path__):
        import_module(f"{apis.__name__}.{module.name}")
    return dict(sorted(_routes.items()))
