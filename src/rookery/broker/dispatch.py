"""A frame in, an answer out: the only place that turns an error into a refusal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, NamedTuple

from rookery.broker.call import Call, Services
from rookery.broker.meter import Meter
from rookery.broker.registry import Route, routes
from rookery.errors import ApiError, Conflict, Corrupt, Error, ErrorCode, ProtocolError, Unavailable
from rookery.net.connection import Connection
from rookery.net.request import Answer
from rookery.wire.frame import Frame
from rookery.wire.header import API_VERSIONS_KEY, peek, read_request, response_frame
from rookery.wire.message import Message
from rookery.wire.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from rookery.wire.messages.produce import ProduceRequest

log = logging.getLogger(__name__)

_UNKNOWN = (None, None)


class _Work(NamedTuple):
    """A request that was started."""

    route: Route
    meter: Meter
    started: float
    call: Call
    request: Message


class Dispatcher:
    """Answers the requests of all connections."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._routes = {key: (route, Meter(route.api)) for key, route in routes().items()}

    def __call__(self, connection: Connection, frame: Frame) -> Answer | Awaitable[Answer]:
        """Start a request; what it raises closes the connection."""
        key, version, correlation_id = peek(frame)
        route, meter = self._routes.get(key, _UNKNOWN)
        if route is None or meter is None or version not in route.versions:
            if key == API_VERSIONS_KEY:
                # Asked in a version that we do not know, we say in version 0 which ones we do.
                return self._refuse_api_versions(correlation_id)
            raise ProtocolError(
                f"API {key} version {version} is not served here; ask ApiVersions for what is"
            )
        header, request = read_request(route.api, frame)
        call = Call(self._services, connection, header)
        work = _Work(route, meter, meter.start(), call, request)
        try:
            answer = route.handle(call, request)
        except Exception as error:  # noqa: BLE001 (a request may fail; the broker does not)
            answer = _refuse(route, request, error)
        if answer is None or isinstance(answer, Message):
            return _finish(work, answer)
        if isinstance(answer, asyncio.Future):
            return _later(work, answer)
        return _await(work, answer)

    def _refuse_api_versions(self, correlation_id: int) -> Answer:
        response = API_VERSIONS.refuse(ApiVersionsRequest(), ErrorCode.UNSUPPORTED_VERSION)
        return response_frame(API_VERSIONS, 0, correlation_id, response)


def _finish(work: _Work, answer: Message | None) -> Answer:
    route, meter, started, call, _ = work
    meter.finish(started, answer)
    if answer is None:
        return None
    return response_frame(route.api, call.version, call.header.correlation_id, answer)


def _later(work: _Work, answer: asyncio.Future[Message | None]) -> asyncio.Future[Answer]:
    """Turn the future of a message into that of its frame, without a task."""
    framed: asyncio.Future[Answer] = answer.get_loop().create_future()

    def settle(done: asyncio.Future[Message | None]) -> None:
        if done.cancelled():
            work.meter.finish(work.started, None)
            framed.cancel()
            return
        error = done.exception()
        try:
            result = done.result() if error is None else _refuse(work.route, work.request, error)
            framed.set_result(_finish(work, result))
        except Exception as failure:  # noqa: BLE001 (an answer that cannot be written ends the connection)
            framed.set_exception(failure)

    answer.add_done_callback(settle)
    return framed


async def _await(work: _Work, answer: Awaitable[Message | None]) -> Answer:
    try:
        result = await answer
    except Exception as error:  # noqa: BLE001 (a request may fail; the broker does not)
        result = _refuse(work.route, work.request, error)
    except asyncio.CancelledError:
        work.meter.finish(work.started, None)
        raise
    return _finish(work, result)


def _refuse(route: Route, request: Any, error: BaseException) -> Message:
    """Answer with the code that fits the error; what nobody expected goes to the log."""
    code = code_of(error)
    if code is ErrorCode.UNKNOWN_SERVER_ERROR:
        log.error("%s failed: %r", route.api.name, error, exc_info=error)
    else:
        log.debug("%s refused: %s", route.api.name, error)
    if isinstance(request, ProduceRequest) and not request.acks:
        # The client reads no answer: one would be taken for that of its next request.
        raise ProtocolError(f"a produce with acks=0 failed: {error}")
    response: Message = route.api.refuse(request, code)
    return response


def code_of(error: BaseException) -> ErrorCode:
    """Return the code that tells a client what to do about an error of ours."""
    match error:
        case ApiError():
            return error.code
        case Unavailable() | Corrupt():
            return ErrorCode.KAFKA_STORAGE_ERROR
        case Conflict():
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        case Error():
            return ErrorCode.INVALID_REQUEST
        case _:
            return ErrorCode.UNKNOWN_SERVER_ERROR
