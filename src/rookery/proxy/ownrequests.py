"""Requests of filters' own, over the connections of their client.

They pass the filters after the one that sends them, as a request of the client would. So a filter
that encrypts, or names topics otherwise, applies to them, too.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from rookery.client.connect.versions import Versions, negotiate
from rookery.errors import ApiError, ErrorCode
from rookery.net.upstream import Upstream
from rookery.proxy.filterapi import FilterContext, Forward
from rookery.proxy.filterchain import FilterOutcome, FilterStep, run_filters, settle
from rookery.proxy.passage import PassageTable
from rookery.wire.message import Api, Message, Request, Response

_CLIENT_ID: Final = "rookery-proxy"

M = TypeVar("M", bound=Message)


class OwnTarget(Protocol):
    """What filters' own requests need of the virtual cluster."""

    passages: PassageTable
    filter_timeout_ms: int
    own_timeout_ms: int


class OwnLine(Protocol):
    """A client's connections to the upstream, as filters use them."""

    @property
    def target(self) -> OwnTarget:
        """The virtual cluster."""

    async def find_versions(self) -> Versions:
        """Return the versions that the upstream knows.

        Raises:
            Unavailable: it does not answer.
            ApiError: it does not report them.
        """

    async def call(self, api: Api[Request, Response], version: int, request: Request) -> Response:
        """Send a request; return its response, with the proxy's addresses.

        Raises:
            Unavailable: the upstream does not answer.
            ApiError: it does not know the API.
        """


class BrokerLine:
    """A client's only connection to a broker; the broker's versions are kept."""

    __slots__ = ("_rewrite", "_upstream", "_versions", "target")

    def __init__(
        self,
        upstream: Upstream,
        target: OwnTarget,
        rewrite: Callable[[Message], Awaitable[bool]],
    ) -> None:
        """Know no versions yet.

        Args:
            upstream: the connection to the broker.
            target: the virtual cluster.
            rewrite: replaces the addresses in a response.
        """
        self.target = target
        self._rewrite = rewrite
        self._upstream = upstream
        self._versions: Versions | None = None

    async def find_versions(self) -> Versions:
        """Return the broker's versions; they cannot change while the connection lasts.

        Raises:
            Unavailable: the broker does not answer.
            ApiError: it does not report them.
        """
        if self._versions is None:
            timeout_ms = self.target.own_timeout_ms
            self._versions = await negotiate(self._upstream, _CLIENT_ID, {}, timeout_ms)
        return self._versions

    async def call(self, api: Api[Request, Response], version: int, request: Request) -> Response:
        """Send a request; return its response, with the proxy's addresses.

        Raises:
            Unavailable: the broker does not answer.
        """
        timeout_ms = self.target.own_timeout_ms
        response = await self._upstream.call(api, version, request, timeout_ms)
        await self._rewrite(response)
        return response


class OwnRequests:
    """Sends requests of one filter's own."""

    __slots__ = ("_context", "_line", "_position")

    def __init__(self, line: OwnLine, context: FilterContext) -> None:
        """Prepare for the filter that sees a message of the context now."""
        self._line = line
        self._context = context
        self._position = context.position

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
            ApiError: it does not know the API, or a later filter has failed.
        """
        target = self._line.target
        if version is None:
            version = (await self._line.find_versions()).choose(api)
        context = replace(self._context, api=api, version=version, notes={})
        passage = target.passages.find((api.key, version))
        outcome = await self._run(passage.request_filters if passage else (), context, request)
        if isinstance(outcome.verdict, Forward):
            changed: Any = outcome.verdict.message or request
            response = await self._line.call(api, version, changed)
            last = None
        else:
            response = _settle(context, request, outcome)
            last = outcome.position
        steps = [
            step
            for step in (passage.response_filters if passage else ())
            if step.applies(context) and (last is None or step.position < last)
        ]
        outcome = await self._run(steps, context, response)
        if isinstance(outcome.verdict, Forward):
            return outcome.verdict.message or response  # type: ignore[return-value] # of this API
        return _settle(context, request, outcome)  # type: ignore[no-any-return] # of this API

    async def _run(
        self, steps: Sequence[FilterStep], context: FilterContext, message: Message
    ) -> FilterOutcome:
        """Pass a message through the filters after the one that sends the request."""
        later = [step for step in steps if step.position > self._position]
        outcome = run_filters(later, context, message, self._line.target.filter_timeout_ms)
        return await outcome if inspect.isawaitable(outcome) else outcome


def _settle(context: FilterContext, request: Message, outcome: FilterOutcome) -> Any:
    """Return the response of a filter.

    Raises:
        ApiError: there is none.
        ProtocolError: the connection is to be closed.
    """
    api = context.api
    response = settle(context, request, outcome, is_one_way=api.is_one_way(request))
    if response is None:
        raise ApiError(ErrorCode.POLICY_VIOLATION, f"a filter dropped a {api.name}")
    return response
