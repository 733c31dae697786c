"""One broker as seen from a client: requests go out as they come, answers come back in order.

An `Upstream` numbers the requests itself, whoever made them: a message (`call`, or `tell` if it
gets no answer) or a frame that is passed on unread (`forward`, `post`). Kafka answers in the order
of the requests, so those in flight are a queue, and an answer with any other number than that of
its head ends the connection.

Every request has a deadline. One that passed it keeps its place in the queue, and its answer is
dropped when it comes. One timer serves them all, armed for the earliest.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from rookery.errors import ConfigError, ProtocolError, Unavailable
from rookery.wire.buffer import Buffer
from rookery.wire.frame import REQUEST_MINIMUM, RESPONSE_MINIMUM, Chunks, Frame, Splitter
from rookery.wire.header import correlation_id, read_response, request_frame
from rookery.wire.message import Api, Request, Response

log = logging.getLogger(__name__)

_LAST_NUMBER: Final = 2**31 - 1
_NOTHING: Final = Frame(memoryview(b""))


@dataclass(frozen=True, slots=True)
class UpstreamSettings:
    """The bounds of a connection to a broker."""

    client_id: str | None = "rookery"
    """The name under which brokers log and meter our requests."""
    connect_timeout_ms: int = 10_000
    """For looking up the name, connecting and the TLS handshake together."""
    max_frame_bytes: int = 104_857_600
    """The largest response."""
    max_in_flight: int = 100
    """Requests sent and not yet answered; more wait, in order."""
    max_unsent_bytes: int = 4 * 1024 * 1024
    """Bytes of requests waiting for the broker to read them, at which more requests wait."""


async def connect(
    host: str,
    port: int,
    settings: UpstreamSettings | None = None,
    *,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    chunks: Chunks | None = None,
) -> Upstream:
    """Connect to a broker.

    Args:
        host: its name or address.
        port: its port.
        settings: the bounds.
        tls: the client's side of TLS; without it the port must be a plain one.
        server_hostname: the name that the broker's certificate must bear, if it is not `host`.
        chunks: where receive buffers come from, if connections share them.

    Raises:
        Unavailable: the broker cannot be reached, or does not speak TLS.
        ConfigError: its certificate is not trusted, or bears another name.
    """
    settings = settings or UpstreamSettings()
    upstream = Upstream(host, port, settings, chunks)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(settings.connect_timeout_ms / 1000):
            await loop.create_connection(
                lambda: upstream,
                host,
                port,
                ssl=tls,
                server_hostname=(server_hostname or host) if tls else None,
            )
    except TimeoutError as error:
        raise Unavailable(
            f"{upstream.name}: no connection within {settings.connect_timeout_ms} ms"
        ) from error
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(
            f"{upstream.name}: its certificate is refused: {error.verify_message}; check the "
            "trusted authorities and the broker's name"
        ) from error
    except OSError as error:
        raise Unavailable(f"{upstream.name}: cannot connect: {error}") from error
    return upstream


class Upstream(asyncio.BufferedProtocol):
    """The client's end of one connection to a broker; made by `connect`."""

    def __init__(
        self, host: str, port: int, settings: UpstreamSettings, chunks: Chunks | None = None
    ) -> None:
        self.host = host
        self.port = port
        self.requests = 0
        self.late_answers = 0
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._splitter = Splitter(settings.max_frame_bytes, minimum=RESPONSE_MINIMUM, chunks=chunks)
        self._transport: asyncio.Transport | None = None
        self._lost: asyncio.Future[None] = self._loop.create_future()
        # Why there is no connection any more.
        self._reason = ""
        self._next_number = 0
        self._unsent: deque[_Call] = deque()
        # Sent and not answered, oldest first.
        self._queue: deque[_Call] = deque()
        self._is_writable = True
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<Upstream {self.name}, {self.in_flight} requests in flight>"

    @property
    def name(self) -> str:
        """Host and port, for messages."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def in_flight(self) -> int:
        """How many requests have no answer yet, sent or waiting for their turn."""
        return len(self._queue) + len(self._unsent)

    @property
    def is_closed(self) -> bool:
        """Whether no more requests can be sent."""
        return self._transport is None or self._transport.is_closing()

    async def call(
        self, api: Api[Request, Response], version: int, request: Request, timeout_ms: int
    ) -> Response:
        """Send a request and return the response to it.

        Raises:
            Unavailable: the connection broke, or no answer came in time.
            ProtocolError: the answer cannot be read; the connection is closed.
            ApiError: we have no definition of this version.
        """
        what = f"{api.name} v{version}"
        number = self._number()
        parts = request_frame(api, version, number, self._settings.client_id, request)
        frame = await self._submit(number, parts, what, timeout_ms)
        try:
            return read_response(api, version, frame)
        except ProtocolError as error:
            self._break(f"its answer to {what} cannot be read: {error}")
            raise

    async def tell(
        self, api: Api[Request, Response], version: int, request: Request, timeout_ms: int
    ) -> None:
        """Send a request that is never answered (Produce with acks=0).

        Raises:
            Unavailable: the connection broke, or could not take the request in time.
            ApiError: we have no definition of this version.
        """
        number = self._number()
        parts = request_frame(api, version, number, self._settings.client_id, request)
        what = f"{api.name} v{version}"
        await self._submit(number, parts, what, timeout_ms, is_answered=False)

    async def forward(self, request: Sequence[Buffer], timeout_ms: int) -> Frame:
        """Send a request that is not read here, under a number of ours; return the response.

        Args:
            request: its parts without the length before them; the first has eight bytes or more.
            timeout_ms: for the whole exchange.

        Raises:
            Unavailable: the connection broke, or no answer came in time.
        """
        number = self._number()
        parts = _renumbered(request, number)
        return await self._submit(number, parts, "a forwarded request", timeout_ms)

    async def post(self, request: Sequence[Buffer], timeout_ms: int) -> None:
        """Send a request that is not read here and never answered, under a number of ours.

        Raises:
            Unavailable: the connection broke, or could not take the request in time.
        """
        number = self._number()
        parts = _renumbered(request, number)
        await self._submit(number, parts, "a posted request", timeout_ms, is_answered=False)

    def close(self) -> None:
        """Close the connection; requests in flight fail."""
        self._break("the connection was closed")

    async def wait_closed(self) -> None:
        """Wait until the connection is gone, for whatever reason."""
        await asyncio.shield(self._lost)

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Be ready for requests."""
        transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but its class
        self._transport = transport
        transport.set_write_buffer_limits(high=self._settings.max_unsent_bytes)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (the splitter knows better)
        """Hand out the memory for the next bytes."""
        return self._splitter.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Give the answers that have arrived to those who wait for them."""
        self._splitter.received(nbytes)
        try:
            while not self.is_closed and (frame := self._splitter.take()) is not None:
                self._answered(frame)
        except ProtocolError as error:
            log.warning("closing the connection to %s: %s", self.name, error)
            self._break(str(error))
        self._pump()

    def pause_writing(self) -> None:
        """Let further requests wait."""
        self._is_writable = False

    def resume_writing(self) -> None:
        """Send what waited."""
        self._is_writable = True
        self._pump()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail everything that waits."""
        self._transport = None
        self._splitter.close()
        self._fail_all(
            f"the connection broke: {exc}" if exc else "the broker closed the connection"
        )
        if not self._lost.done():
            self._lost.set_result(None)

    # Requests and answers.

    def _number(self) -> int:
        number = self._next_number
        self._next_number = 0 if number == _LAST_NUMBER else number + 1
        return number

    async def _submit(
        self,
        number: int,
        parts: list[Buffer],
        what: str,
        timeout_ms: int,
        *,
        is_answered: bool = True,
    ) -> Frame:
        """Send a request when its turn comes, and wait for what comes of it."""
        if self.is_closed:
            raise Unavailable(f"{self.name}: {self._reason or 'there is no connection'}")
        deadline = self._loop.time() + timeout_ms / 1000
        what = f"{what} within {timeout_ms} ms"
        call = _Call(number, parts, self._loop.create_future(), deadline, what, is_answered)
        self._unsent.append(call)
        self._pump()
        if not call.answer.done():
            self._arm(deadline)
        return await call.answer

    def _pump(self) -> None:
        """Send what waits, in order, as far as there is room."""
        unsent, queue, transport = self._unsent, self._queue, self._transport
        while (
            unsent
            and self._is_writable
            and len(queue) < self._settings.max_in_flight
            and transport is not None
        ):
            call = unsent.popleft()
            if call.answer.done():  # it was cancelled, or its time ran out
                continue
            self.requests += 1
            if call.is_answered:
                queue.append(call)
            else:
                call.answer.set_result(_NOTHING)
            transport.writelines(call.parts)
            call.parts = []

    def _answered(self, frame: Frame) -> None:
        number = correlation_id(frame)
        if not self._queue:
            raise ProtocolError(f"an answer (correlation id {number}) that nobody asked for")
        call = self._queue.popleft()
        if number != call.number:
            self._queue.appendleft(call)
            raise ProtocolError(
                f"an answer with correlation id {number}, but {call.number} is the next"
            )
        if call.answer.done():
            self.late_answers += 1
        else:
            call.answer.set_result(frame)

    # Deadlines and the end.

    def _arm(self, deadline: float) -> None:
        """See to it that the timer fires no later than at a deadline."""
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        """Fail the requests whose time has come; look again at the earliest of the others."""
        self._timer = None
        now = self._loop.time()
        waiting = [call for call in (*self._queue, *self._unsent) if not call.answer.done()]
        for call in waiting:
            if call.deadline <= now:
                call.answer.set_exception(Unavailable(f"{self.name} did not answer {call.what}"))
        rest = [call.deadline for call in waiting if call.deadline > now]
        if rest:
            self._arm(min(rest))

    def _break(self, reason: str) -> None:
        self._fail_all(reason)
        if self._transport is not None:
            self._transport.abort()

    def _fail_all(self, reason: str) -> None:
        self._reason = self._reason or reason
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        calls = (*self._queue, *self._unsent)
        self._queue.clear()
        self._unsent.clear()
        for call in calls:
            if not call.answer.done():
                call.answer.set_exception(Unavailable(f"{self.name}: {self._reason}"))


@dataclass(slots=True)
class _Call:
    """A request, from its making to its answer."""

    number: int
    parts: list[Buffer]
    answer: asyncio.Future[Frame]
    deadline: float
    what: str
    is_answered: bool


def _renumbered(request: Sequence[Buffer], number: int) -> list[Buffer]:
    """Return a request, length first, under another correlation id; its body is not copied."""
    first = memoryview(request[0]) if request else memoryview(b"")
    if len(first) < REQUEST_MINIMUM:
        raise ProtocolError(
            f"a request that begins with a part of {len(first)} bytes; its header has 8 and more"
        )
    length = sum(map(len, request))
    head = struct.pack(">i4si", length, bytes(first[:4]), number)
    return [head, first[REQUEST_MINIMUM:], *request[1:]]
