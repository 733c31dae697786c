"""Which function answers which API, and what else must be known about it: its route.

    @handles(HEARTBEAT, mutates=True, touches=(named(AclResource.GROUP, Operation.READ),))
    async def heartbeat(call: Call, request: HeartbeatRequest) -> HeartbeatResponse: ...

The files of `broker/apis` are scanned for handlers. The decorator ties both message types, so a
wrong one fails type checking. A handler may be a plain function (its answer is there at once),
return a future, or be a coroutine function.

Dispatch, ApiVersions, read-only mode and the documentation follow from the routes. What an API
changes and touches has no default: a new handler must state it.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

from rookery.broker import apis
from rookery.broker.call import Call
from rookery.security.access import Access
from rookery.wire.message import Api, Message

Req = TypeVar("Req", bound=Message)
Res = TypeVar("Res", bound=Message)

Handle = Callable[[Call, Req], "Awaitable[Res | None] | Res | None"]
"""Answers a request; None if no answer is wanted."""


class Route(NamedTuple):
    """An API, the versions that are served, the function that serves them, and its traits."""

    api: Api[Any, Any]
    versions: range
    handle: Handle[Any, Any]
    mutates: bool
    """Whether a request can change the cluster's state or the log."""
    is_served_read_only: bool
    """Whether a read-only broker advertises it."""
    touches: tuple[Access, ...]
    """The operations that a client needs, and on which resources."""


_routes: dict[int, Route] = {}


def handles(
    api: Api[Req, Res],
    versions: range | None = None,
    *,
    mutates: bool,
    touches: tuple[Access, ...],
    is_served_read_only: bool = False,
) -> Callable[[Handle[Req, Res]], Handle[Req, Res]]:
    """Let a function answer an API.

    Args:
        api: which one.
        versions: those that are served; None for all.
        mutates: whether a request can change the cluster's state or the log.
        touches: the operations that a client needs, and on which resources.
        is_served_read_only: whether a read-only broker serves it although it mutates, because
            what it changes is kept in memory there or because it is refused by other means.
    """

    def note(function: Handle[Req, Res]) -> Handle[Req, Res]:
        if api.key in _routes:
            raise TypeError(f"{api.name} has two handlers")
        _routes[api.key] = Route(
            api=api,
            versions=versions or api.versions,
            handle=function,
            mutates=mutates,
            is_served_read_only=is_served_read_only or not mutates,
            touches=touches,
        )
        return function

    return note


@cache
def routes() -> dict[int, Route]:
    """Return all routes by API key."""
    for module in pkgutil.iter_modules(apis.__path__):
        import_module(f"{apis.__name__}.{module.name}")
    return dict(sorted(_routes.items()))


def hidden_when_read_only() -> frozenset[int]:
    """Return the keys of the APIs that a read-only broker does not serve."""
    return frozenset(key for key, route in routes().items() if not route.is_served_read_only)
