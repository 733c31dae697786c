"""What a filter is: functions that see requests and responses, and decide what happens to them.

    class Audit(Filter):
        @on_request(CREATE_TOPICS)
        def note(self, context: FilterContext, request: CreateTopicsRequest) -> Verdict:
            log.info("%s creates %s", context.principal, [topic.name for topic in request.topics])
            return FORWARD

A function can be a coroutine function, too. Requests pass the filters of a virtual cluster in the
order of its configuration, responses in the opposite order. What no filter has a function for is
not decoded.

One object of a filter serves all clients of a virtual cluster. What it keeps about one client is in
`FilterContext.memory`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Protocol, TypeVar

from rookery.clock import Clock
from rookery.net.session import ClientSession
from rookery.wire.message import Api, Message, Request, Response


@dataclass(frozen=True, slots=True)
class Forward:
    """Pass a request or response on."""

    message: Message | None = None
    """The changed message; None if it passes as it came, which needs no encoding."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a request without the upstream."""

    response: Message


@dataclass(frozen=True, slots=True)
class Drop:
    """Pass nothing on, and send no response; only for requests that have none."""


@dataclass(frozen=True, slots=True)
class Close:
    """Close the client's connection, after the responses before this one."""

    reason: str


Verdict = Forward | Answer | Drop | Close
"""The decision of a filter about one message."""

FORWARD: Final = Forward()
"""Pass a message on as it came."""


class FilterUpstream(Protocol):
    """The upstream, for a filter's own requests."""

    async def send(
        self, api: Api[Request, Response], request: Request, version: int | None = None
    ) -> Response:
        """Send a request; return its response, with the proxy's addresses.

        Args:
            api: the API of the request.
            request: to send.
            version: to send it in; by default the newest that both sides know.

        Raises:
            Unavailable: the broker does not answer.
            ApiError: it does not know the API.
        """


def _ignore(_: str) -> None:
    """Report nothing."""


@dataclass(slots=True)
class FilterContext:
    """One request of a client, for the filters that see it or its response."""

    cluster: str
    """The virtual cluster."""
    node_id: int | None
    """The broker that the client has connected to; None for the bootstrap port."""
    session: ClientSession
    """The client: principal, host and software."""
    api: Api[Any, Any]
    version: int
    client_id: str | None
    """The client id in the header of the request."""
    clock: Clock
    open_upstream: Callable[[FilterContext], FilterUpstream] = field(repr=False)
    """Returns what sends requests of the filter at `position`."""
    mute: Callable[[int], None] = field(repr=False)
    """Starts none of the client's later requests for a number of milliseconds."""
    request_size: int = 0
    """The size of the request in bytes, as it came."""
    response_size: int = 0
    """The size of the response in bytes, as it came."""
    position: int = 0
    """The place of the filter that sees the message now, in the configuration."""
    memory: dict[Filter, Any] = field(default_factory=dict)
    """What each filter keeps about this client, until it disconnects."""
    notes: dict[Filter, Any] = field(default_factory=dict)
    """What each filter keeps about this request, until its response."""
    report_fault: Callable[[str], None] = field(default=_ignore, repr=False)
    """Records that a filter has failed, for the health of the virtual cluster."""

    @property
    def upstream(self) -> FilterUpstream:
        """Sends requests of the filter's own; they pass the filters after it."""
        return self.open_upstream(self)

    @property
    def principal(self) -> str:
        """The client's user, such as `User:alice`."""
        return self.session.principal or "User:ANONYMOUS"


F = TypeVar("F", bound=Callable[..., "Verdict | Awaitable[Verdict]"])
FilterFunction = Callable[[FilterContext, Any], "Verdict | Awaitable[Verdict]"]
"""A function of a filter that is bound to its object."""

ANY: Final = "any"
"""Every API; such a function sees messages of all kinds."""

_MARK: Final = "__rookery_filter__"
_IF_NOTED: Final = "__rookery_if_noted__"


def on_request(*apis: Api[Any, Any] | str) -> Callable[[F], F]:
    """Mark a method that sees the requests of some APIs, or of `ANY`; names can stand for APIs."""
    return _mark("request", apis)


def on_response(*apis: Api[Any, Any] | str) -> Callable[[F], F]:
    """Mark a method that sees the responses of some APIs, or of `ANY`."""
    return _mark("response", apis)


def _mark(kind: str, apis: tuple[Api[Any, Any] | str, ...]) -> Callable[[F], F]:
    names = frozenset(each if isinstance(each, str) else each.name for each in apis)

    def mark(function: F) -> F:
        marks: dict[str, frozenset[str]] = {**getattr(function, _MARK, {}), kind: names}
        setattr(function, _MARK, marks)
        return function

    return mark


def if_noted(function: F) -> F:
    """Mark a method that sees only the responses to requests that its filter has a note of.

    Other responses are not decoded for it: see `FilterContext.notes`.
    """
    setattr(function, _IF_NOTED, True)
    return function


def needs_note(function: FilterFunction) -> bool:
    """Return whether a function sees only responses to noted requests."""
    return getattr(function, _IF_NOTED, False)


class Filter:
    """The base class of filters."""

    OPTIONS: ClassVar[Mapping[str, str]] = {}
    """The options that the filter has in the configuration, each with its description."""

    def __init__(self, options: Mapping[str, Any] | None = None) -> None:
        """Take the options of the configuration.

        Raises:
            ConfigError: an option is unknown, missing or invalid.
        """
        self.options = dict(options or {})

    async def start(self) -> None:
        """Prepare the work, before the first client connects."""

    async def close(self) -> None:
        """Release everything, after the last client is gone."""

    def abandon(self, context: FilterContext) -> None:
        """Take note that a request of which the filter has a note will have no response."""

    def functions(self, kind: str, api: Api[Any, Any]) -> list[FilterFunction]:
        """Return the methods that see the requests or responses of an API."""
        functions: list[FilterFunction] = []
        for name in dir(type(self)):
            marks = getattr(getattr(type(self), name), _MARK, {})
            if marks.get(kind, frozenset()) & {api.name, ANY}:
                functions.append(getattr(self, name))
        return functions
