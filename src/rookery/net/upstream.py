"""A connection to one broker: requests are sent as they come, responses return in order.

An `Upstream` assigns the correlation ids. `submit` sends a frame without decoding it and returns a
future, without a task. `relay` does so without a future: its result is the place of the request
among those of the client's `Connection`. `call`, `tell`, `forward` and `post` wait.

Both directions are limited in bytes:

- Requests that the broker does not read are queued. At `max_queued_bytes` the upstream is full:
  `submit` rejects more, and callbacks registered with `when_full` are called. The four coroutines
  still queue theirs, because their callers wait anyway.
- Responses that the caller keeps (`CallOptions.is_kept`) are counted until `release`. At
  `max_unread_bytes`, reading from the broker stops. `pause` and `resume` do the same manually.

A request may have a deadline. After its deadline it keeps its place, and its response is dropped
on arrival. One timer serves all requests, armed for the earliest deadline.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from rookery.errors import ConfigError, ProtocolError, Unavailable
from rookery.net.callqueue import (
    CallOptions,
    PendingCall,
    QueuedCall,
    RelayedCall,
    renumber_request,
)
from rookery.net.outbox import Answer
from rookery.net.settings import UpstreamSettings
from rookery.net.upstreamprotocol import UpstreamProtocol
from rookery.wire.buffer import Buffer
from rookery.wire.codec import read_response, request_frame
from rookery.wire.frame import Chunks, Frame
from rookery.wire.message import Api, Request, Response

if TYPE_CHECKING:
    from rookery.net.connection import Connection

T = TypeVar("T")

_DEFAULT: Final = CallOptions()


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
        settings: the limits.
        tls: the client-side TLS context; without it, the connection is plaintext.
        server_hostname: the name that the broker's certificate must contain, if it is not `host`.
        chunks: the receive buffers, if connections share them.

    Raises:
        Unavailable: the broker cannot be reached, or does not speak TLS.
        ConfigError: its certificate is not trusted, or contains another name.
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
    except (OSError, ValueError, OverflowError) as error:
        # The last two: a name that is not a host name, a number that is not a port.
        raise Unavailable(f"{upstream.name}: cannot connect: {error}") from error
    return upstream


class Upstream(UpstreamProtocol):
    """The client's end of one connection to a broker; created by `connect`."""

    def submit(
        self,
        request: Sequence[Buffer],
        read: Callable[[Frame], T],
        options: CallOptions = _DEFAULT,
    ) -> asyncio.Future[T]:
        """Send a request with another correlation id, without decoding it; no task is created.

        Args:
            request: its parts without the length prefix; the first contains the whole header.
            read: converts the response to the result of the future. It is called when the
                response arrives, in order; never for a request without a response.
            options: how the request is sent.

        Returns:
            What `read` returned; fails with `Unavailable` if the connection breaks or no response
            arrives in time. For a request without a response it is None, as soon as it is sent.

        Raises:
            Unavailable: there is no connection, or the upstream is full.
            ProtocolError: the request has no header.
        """
        self._check_room()
        number = self.calls.number()
        call = PendingCall(
            number,
            renumber_request(request, number, options.client_id),
            "a forwarded request",
            self.loop.create_future(),
            read=read,
            is_answered=options.is_answered,
        )
        call.is_kept = options.is_kept
        return self.send(call, options.timeout_ms)

    def relay(
        self,
        request: Sequence[Buffer],
        client_number: int,
        options: CallOptions = _DEFAULT,
        read: Callable[[Frame], Answer] | None = None,
    ) -> RelayedCall:
        """Send a client's request with another correlation id; no future is created.

        Args:
            request: its parts without the length prefix; the first contains the whole header.
            client_number: the client's correlation id, which the answer gets.
            options: how the request is sent.
            read: converts the response to the client's answer, length first.

        Returns:
            The request, for the client's `Connection`: it is answered when the response arrives.

        Raises:
            Unavailable: there is no connection, or the upstream is full.
            ProtocolError: the request has no header.
        """
        self._check_room()
        number = self.calls.number()
        call = RelayedCall(number, client_number, read, is_answered=options.is_answered)
        parts = renumber_request(request, number, options.client_id)
        if options.is_answered and self._can_send:
            self._send_now(call, parts, options.timeout_ms)
        else:
            call.parts = parts
            call.unsent_bytes = sum(map(len, parts))
            self.enqueue(call, options.timeout_ms)
        return call

    def when_large(self, callback: Callable[[int], None]) -> None:
        """Register the callback for the start of a large response, which gets its length.

        Little of it has arrived then. The callback can `pause` until there is room for it.
        """
        self.splitter.when_large = callback

    def receive(self, chunk: memoryview, start: int, end: int) -> None:
        """Continue with responses in a chunk that was filled elsewhere."""
        self.splitter.adopt(chunk, start, end)
        if self.calls.direct is not None:
            self.calls.direct.spill()
        self._deliver()

    async def call(
        self,
        api: Api[Request, Response],
        version: int,
        request: Request,
        timeout_ms: int,
        *,
        client_id: str | None = None,
        is_urgent: bool = False,
    ) -> Response:
        """Send a request and return its response.

        Args:
            api: the API of the request.
            version: the version of the API.
            request: to send.
            timeout_ms: the limit for the whole exchange.
            client_id: replaces that of the settings.
            is_urgent: whether it is sent before queued requests, also while these are held.

        Raises:
            Unavailable: the connection broke, or no response arrived in time.
            ProtocolError: the response cannot be decoded; the connection is closed.
            ApiError: we have no definition of this version.
        """
        call = self._make_message(api, version, request, client_id)
        call.is_urgent = is_urgent
        frame: Frame = await self.send(call, timeout_ms)
        try:
            return read_response(api, version, frame)
        except ProtocolError as error:
            self.break_off(f"its response to {call.name} cannot be decoded: {error}")
            raise

    async def tell(
        self, api: Api[Request, Response], version: int, request: Request, timeout_ms: int
    ) -> None:
        """Send a request that has no response (Produce with acks=0).

        Raises:
            Unavailable: the connection broke, or could not take the request in time.
            ApiError: we have no definition of this version.
        """
        call = self._make_message(api, version, request, None)
        call.is_answered = False
        await self.send(call, timeout_ms)

    async def forward(self, request: Sequence[Buffer], timeout_ms: int) -> Frame:
        """Send a request with another correlation id, without decoding it; return the response.

        Args:
            request: its parts without the length prefix; the first has at least eight bytes.
            timeout_ms: the limit for the whole exchange.

        Raises:
            Unavailable: the connection broke, or no response arrived in time.
        """
        number = self.calls.number()
        parts = renumber_request(request, number)
        call = PendingCall(number, parts, "a forwarded request", self.loop.create_future())
        frame: Frame = await self.send(call, timeout_ms)
        return frame

    async def post(self, request: Sequence[Buffer], timeout_ms: int) -> None:
        """Send a request without a response, with another correlation id and without decoding it.

        Raises:
            Unavailable: the connection broke, or could not take the request in time.
        """
        number = self.calls.number()
        parts = renumber_request(request, number)
        call = PendingCall(
            number, parts, "a posted request", self.loop.create_future(), is_answered=False
        )
        await self.send(call, timeout_ms)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep all requests in the queue that are not urgent.

        Brokers close a connection on which another request arrives during a login.
        """
        self.calls.is_held = True
        try:
            yield
        finally:
            self.calls.is_held = False
            self._pump()

    def pause(self) -> None:
        """Deliver no more responses until `resume`, because their receivers are slow."""
        self._is_paused = True
        self.can_take = False
        self._regulate()

    def resume(self) -> None:
        """Undo `pause`; without it, do nothing."""
        if self._is_paused:
            self._is_paused = False
            self.can_take = self._may_take()
            self.loop.call_soon(self._deliver)

    def release(self, count: int) -> None:
        """Release bytes of kept responses."""
        self.unread_bytes -= count
        if not self.can_take and self.unread_bytes * 2 <= self.settings.max_unread_bytes:
            self.can_take = self._may_take()
            self.loop.call_soon(self._deliver)

    @property
    def _can_send(self) -> bool:
        """Whether a request can be sent at once, before no other."""
        calls = self.calls
        return (
            self.is_writable
            and not calls.unsent
            and not calls.is_held
            and len(calls.sent) < self.settings.max_in_flight
        )

    def _send_now(self, call: QueuedCall, parts: list[Buffer], timeout_ms: int | None) -> None:
        """Send a request that has a response, while `_can_send` is true."""
        assert self.transport is not None  # noqa: S101 (the connection is open)
        self.requests += 1
        self.calls.sent.append(call)
        if timeout_ms is not None:
            call.timeout_ms = timeout_ms
            call.deadline = deadline = self._now() + timeout_ms / 1000
            if deadline < self.timer_at:
                self.arm(deadline)
        self.transport.writelines(parts)

    def _check_room(self) -> None:
        """Refuse a request that cannot be queued.

        Raises:
            Unavailable: there is no connection, or the upstream is full.
        """
        if self.is_closed:
            raise Unavailable(f"{self.name}: {self._reason or 'there is no connection'}")
        if self.is_full:
            raise Unavailable(
                f"{self.name}: {self.queued_bytes} bytes of requests wait to be sent, at most "
                f"{self.settings.max_queued_bytes} are allowed; try again later"
            )

    def _make_message(
        self,
        api: Api[Request, Response],
        version: int,
        request: Request,
        client_id: str | None,
    ) -> PendingCall:
        number = self.calls.number()
        name = self.settings.client_id if client_id is None else client_id
        parts = request_frame(api, version, number, name, request)
        return PendingCall(number, parts, f"{api.name} v{version}", self.loop.create_future())


def relay(connection: Connection, upstream: Upstream) -> None:
    """Couple a client and its upstream for back-pressure and closing.

    The upstream reads nothing while the client does not read its responses. The client's requests
    wait while the upstream is full. When one end closes, the other closes too; the client's end
    closes after the pending responses.
    """
    upstream.batch = connection
    connection.when_stuck(lambda is_stuck: upstream.pause() if is_stuck else upstream.resume())
    upstream.when_full(lambda is_full: connection.pause() if is_full else connection.resume())
    connection.when_lost(upstream.close)
    upstream.when_lost(connection.close)
