"""A broker with scripted answers, for cases that a real Kafka does not produce on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from rookery.errors import ErrorCode
from rookery.wire.catalog import apis
from rookery.wire.codec import peek, read_request, response_frame
from rookery.wire.frame import FrameSplitter
from rookery.wire.message import Message
from rookery.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse

Answer = Callable[[Message], Message | None]
"""Makes the response to a request; None hangs up instead."""


class Script:
    """What all connections of a scripted broker share."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.requests: list[Message] = []

    def answer(self, request: Message) -> Message | None:
        if isinstance(request, ApiVersionsRequest):
            rows = [
                ApiVersion(api_key=key, min_version=api.versions[0], max_version=api.versions[-1])
                for key, api in apis().items()
            ]
            return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=rows)
        self.requests.append(request)
        return self._answer(request)


class _Connection(asyncio.Protocol):
    def __init__(self, script: Script) -> None:
        self._script = script
        self._splitter = FrameSplitter(1_000_000)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        while data:
            room = self._splitter.buffer()
            size = min(len(room), len(data))
            room[:size] = data[:size]
            self._splitter.note_received(size)
            data = data[size:]
            while (frame := self._splitter.take()) is not None:
                self._on_request(frame)

    def _on_request(self, frame: memoryview) -> None:
        key, version, number = peek(frame)
        api = apis()[key]
        _, request = read_request(api, frame)
        response = self._script.answer(request)
        if response is None:
            self._transport.abort()
        else:
            self._transport.writelines(response_frame(api, version, number, response))


@asynccontextmanager
async def scripted(answer: Answer) -> AsyncIterator[tuple[Script, int]]:
    """Run a scripted broker; give its script and its port."""
    script = Script(answer)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(script), "127.0.0.1", 0)
    async with server:
        yield script, server.sockets[0].getsockname()[1]
