"""A frame in, an answer out: the only place that turns an error into a refusal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

from rookery.broker.call import Call, Services
from rookery.broker.registry import Route, routes
from rookery.errors import ApiError, Conflict, Corrupt, Error, ErrorCode, ProtocolError, Unavailable
from rookery.net.connection import Connection
from rookery.net.request import Answer
from rookery.wire.frame import Frame
from rookery.wire.header import API_VERSIONS_KEY, peek, read_request, response_frame
from rookery.wire.message import Message
from rookery.wire.messages.api_versions import API_VERSIONS, ApiVersionsRequest

log = logging.getLogger(__name__)


class Dispatcher:
    """Answers the requests of all connections."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._routes = routes()

    def __call__(self, connection: Connection, frame: Frame) -> Answer | Awaitable[Answer]:
        """Start a request; what it raises closes the connection."""
        key, version, correlation_id = peek(frame)
        route = self._routes.get(key)
        if route is None or version not in route.versions:
            if key == API_VERSIONS_KEY:
                # Asked in a version that we do not know, we say in version 0 which ones we do.
                return self._refuse_api_versions(correlation_id)
            raise ProtocolError(
                f"API {key} version {version} is not served here; ask ApiVersions for what is"
            )
        header, request = read_request(route.api, frame)
        call = Call(self._services, connection, header)
        try:
            answer = route.handle(call, request)
        except Exception as error:  # noqa: BLE001 (a request may fail; the broker does not)
            answer = _refuse(route, request, error)
        if answer is None or isinstance(answer, Message):
            return _frame(route, call, answer)
        if isinstance(answer, asyncio.Future):
            return _later(route, call, request, answer)
        return _await(route, call, request, answer)

    def _refuse_api_versions(self, correlation_id: int) -> Answer:
        response = API_VERSIONS.refuse(ApiVersionsRequest(), ErrorCode.UNSUPPORTED_VERSION)
        return response_frame(API_VERSIONS, 0, correlation_id, response)


def _frame(route: Route, call: Call, answer: Message | None) -> Answer:
    if answer is None:
        return None
    return response_frame(route.api, call.version, call.header.correlation_id, answer)


def _later(
    route: Route, call: Call, request: Message, answer: asyncio.Future[Message | None]
) -> asyncio.Future[Answer]:
    """Turn the future of a message into that of its frame, without a task."""
    framed: asyncio.Future[Answer] = answer.get_loop().create_future()

    def settle(done: asyncio.Future[Message | None]) -> None:
        if done.cancelled():
            framed.cancel()
            return
        error = done.exception()
        result = done.result() if error is None else _refuse(route, request, error)
        try:
            framed.set_result(_frame(route, call, result))
        except Exception as failure:  # noqa: BLE001 (an answer that cannot be written ends the connection)
            framed.set_exception(failure)

    answer.add_done_callback(settle)
    return framed


async def _await(
    route: Route, call: Call, request: Message, answer: Awaitable[Message | None]
) -> Answer:
    try:
        result = await answer
    except Exception as error:  # noqa: BLE001 (a request may fail; the broker does not)
        result = _refuse(route, request, error)
    return _frame(route, call, result)


def _refuse(route: Route, request: Any, error: BaseException) -> Message:
    """Answer with the code that fits the error; what nobody expected goes to the log."""
    code = code_of(error)
    if code is ErrorCode.UNKNOWN_SERVER_ERROR:
        log.error("%s failed: %r", route.api.name, error, exc_info=error)
    else:
        log.debug("%s refused: %s", route.api.name, error)
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
