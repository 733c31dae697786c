"""Dispatches request frames to handlers; the only place that turns errors into error responses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, Final, NamedTuple

from rookery.broker.call import Call, Route, Services, routes
from rookery.cluster.appender import IncarnationFenced
from rookery.errors import ErrorCode, ProtocolError, Unavailable, code_of
from rookery.net.connection import Connection
from rookery.net.outbox import Answer
from rookery.net.session import ClientSession
from rookery.service.access.verdict import AccessVerdict
from rookery.service.meter import ApiMeter, RequestMetrics
from rookery.service.quotas.requestthrottle import RequestThrottle
from rookery.wire.codec import (
    API_VERSIONS_KEY,
    peek,
    read_request,
    response_frame,
)
from rookery.wire.frame import Frame
from rookery.wire.message import Message
from rookery.wire.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from rookery.wire.messages.sasl_authenticate import SASL_AUTHENTICATE
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE

log = logging.getLogger(__name__)

REQUESTS: Final = RequestMetrics("broker")
_BEFORE_LOGIN: Final = frozenset({API_VERSIONS_KEY, SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key})
"""The APIs that need no login."""


class _ServedApi(NamedTuple):
    """An API in one version."""

    route: Route
    meter: ApiMeter


class _Work:
    """A request in progress."""

    __slots__ = ("call", "framed", "meter", "request", "route", "started")

    def __init__(self, served: _ServedApi, call: Call, request: Message) -> None:
        self.route, self.meter = served
        self.call = call
        self.request = request
        self.framed: asyncio.Future[Answer]
        self.started = self.meter.start()

    def finish(self, answer: Message | None) -> Answer:
        """Record the request as finished and encode its response."""
        self.meter.finish(self.started, answer)
        throttle = self.call.throttle
        if throttle is not None:
            return throttle.finish(answer, self._encode)
        if answer is None:
            return None
        return self._encode(answer)

    def _encode(self, answer: Message) -> Answer:
        header = self.call.header
        return response_frame(self.route.api, header.api_version, header.correlation_id, answer)

    def later(self, answer: asyncio.Future[Message | None]) -> asyncio.Future[Answer]:
        """Convert the future of a message into a future of its frame, without a task."""
        self.framed = answer.get_loop().create_future()
        answer.add_done_callback(self._settle)
        return self.framed

    def _settle(self, done: asyncio.Future[Message | None]) -> None:
        if done.cancelled():
            self.meter.finish(self.started, None)
            self.framed.cancel()
            return
        error = done.exception()
        try:
            result = done.result() if error is None else self.refuse(error)
            self.framed.set_result(self.finish(result))
        except Exception as failure:  # noqa: BLE001 (an answer that cannot be written ends the connection)
            self.framed.set_exception(failure)

    async def wait(self, answer: Awaitable[Message | None]) -> Answer:
        """Wait for the message, then encode it."""
        try:
            throttle = self.call.throttle
            result = await (answer if throttle is None else throttle.measure(answer))
        except Exception as error:  # noqa: BLE001 (a request may fail; the broker does not)
            result = self.refuse(error)
        except asyncio.CancelledError:
            self.meter.finish(self.started, None)
            raise
        return self.finish(result)

    def serve_partly(self, verdict: AccessVerdict) -> Answer | Awaitable[Answer]:
        """Serve the part of the request that the guard lets through, and complete its answer."""
        if verdict.refused and self.route.api.is_one_way(self.request):
            return self._serve_one_way(verdict)
        if verdict.request is None:
            return self.finish(verdict.complete(None))
        return self.wait(self._complete(verdict, self._start(verdict.request)))

    def _start(self, request: Message) -> Awaitable[Message | None] | Message | None:
        # Errors of the handler are about this part.
        self.request = request
        try:
            return self.route.handle(self.call, request)
        except Exception as error:  # noqa: BLE001 (a request may fail; the broker does not)
            return self.refuse(error)

    async def _complete(
        self, verdict: AccessVerdict, answer: Awaitable[Message | None] | Message | None
    ) -> Message | None:
        if answer is not None and not isinstance(answer, Message):
            try:
                answer = await answer
            except Exception as error:  # noqa: BLE001 (a request may fail; the broker does not)
                answer = self.refuse(error)
        return None if answer is None else verdict.complete(answer)

    async def _serve_one_way(self, verdict: AccessVerdict) -> Answer:
        """Serve the allowed part, then close the connection, as Kafka does."""
        if verdict.request is not None:
            await self._complete(verdict, self._start(verdict.request))
        self.meter.finish(self.started, None)
        raise ProtocolError(f"{self.route.api.name} without an answer is not authorized")

    def abandon(self) -> Answer:
        """Close the connection without an answer: clients retry all requests on another broker."""
        self.call.connection.close()
        return self.finish(None)

    def refuse(self, error: BaseException) -> Message | None:
        """Return a response with the error code for the exception."""
        if isinstance(error, IncarnationFenced) and self.call.services.is_draining:
            # Few APIs have an error code for a broker that has left. Clients retry all of them on
            # another broker when the connection closes.
            self.call.connection.close()
            return None
        return _refuse(self.route, self.request, error)


class Dispatcher:
    """Answers the requests of all connections."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._served: dict[tuple[int, int], _ServedApi] = {}
        for key, route in routes().items():
            if key in services.hidden:
                continue
            meter = ApiMeter(REQUESTS, route.api)
            for version in route.versions:
                self._served[key, version] = _ServedApi(route, meter)

    def __call__(self, connection: Connection, frame: Frame) -> Answer | Awaitable[Answer]:
        """Start a request; an exception closes the connection."""
        session = connection.session
        needs_login = session.principal is None or session.expires_ms != 0
        if needs_login:
            login = self._services.logins.get(session.listener)
            if login is not None and login.expects_token(connection):
                return login.take_token(connection, bytes(frame))  # It has no header.
        key, version, correlation_id = peek(frame)
        if needs_login:
            self._check_login(session, key)
        served = self._served.get((key, version))
        if served is None:
            return self._refuse_version(key, version, correlation_id)
        self._services.requests += 1
        header, request = read_request(served.route.api, frame)
        work = _Work(served, Call(self._services, connection, header), request)
        if self._services.quotas.is_active and key not in _BEFORE_LOGIN:
            work.call.throttle = RequestThrottle(
                self._services.quotas, connection, header.client_id, request, len(frame)
            )
        return self._serve(work)

    def _serve(self, work: _Work) -> Answer | Awaitable[Answer]:
        """Call the handler with the part of the request that the guard lets through."""
        guard, route, call = self._services.guard, work.route, work.call
        if guard is not None:
            session = call.connection.session
            if guard.binds(route.api.key, session) and not self._has_lease():
                return work.abandon()
            verdict = guard.check(route.api, route.touches, call.version, work.request, session)
            if verdict is not None:
                return work.serve_partly(verdict)
        try:
            answer = route.handle(call, work.request)
        except Exception as error:  # noqa: BLE001 (a request may fail; the broker does not)
            answer = work.refuse(error)
        if work.call.throttle is not None:
            work.call.throttle.end_first_step()
        if isinstance(answer, asyncio.Future):
            return work.later(answer)
        if answer is None or isinstance(answer, Message):
            return work.finish(answer)
        return work.wait(answer)

    def _has_lease(self) -> bool:
        """Return whether the access rules are up to date."""
        lease = self._services.lease
        try:
            if lease is not None:
                lease.require()
        except Unavailable:
            return False
        return True

    def _check_login(self, session: ClientSession, key: int) -> None:
        """Accept only logins from a client that has not logged in, or whose login has expired.

        Raises:
            ProtocolError: it is another request; the connection closes, as in Kafka.
        """
        if key in _BEFORE_LOGIN:
            return
        if session.principal is None:
            raise ProtocolError(f"API {key} before the login; authenticate with SASL first")
        if self._services.clock.monotonic_ms() >= session.expires_ms:
            raise ProtocolError(f"the login of {session.principal} has expired; log in again")

    def _refuse_version(self, key: int, version: int, correlation_id: int) -> Answer:
        if key != API_VERSIONS_KEY:
            raise ProtocolError(
                f"API {key} version {version} is not served; ApiVersions lists those that are"
            )
        # For an unsupported version, the supported ones are returned in version 0.
        response = API_VERSIONS.refuse(ApiVersionsRequest(), ErrorCode.UNSUPPORTED_VERSION)
        return response_frame(API_VERSIONS, 0, correlation_id, response)


def _refuse(route: Route, request: Any, error: BaseException) -> Message:
    """Return an error response; log unexpected errors."""
    code = code_of(error)
    if code is ErrorCode.UNKNOWN_SERVER_ERROR:
        log.error("%s failed: %r", route.api.name, error, exc_info=error)
    else:
        log.debug("%s refused: %s", route.api.name, error)
    if route.api.is_one_way(request):
        # The client would take a response for that of its next request.
        raise ProtocolError(f"{route.api.name} without a response failed: {error}")
    response: Message = route.api.refuse(request, code)
    return response
