"""One client of the HTTP server: requests in, responses out, one request at a time.

Every length, count and time is limited. A session is in one of these phases; the server limits
answering, and a timer limits each of the others:

    idle ──first byte──► receiving ──whole request──► answering ──► sending ──► idle
                              └──refused──► sending ──the last answer──► leaving ──► closed

Leaving: the session has closed its own side and still reads for a while. An immediate close would
reset the connection, and the client would lose the response that states the reason.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final, Protocol, cast

from rookery import metrics
from rookery.clock import loop_seconds
from rookery.model.address import address_name
from rookery.net.httpcodec import HttpCodec
from rookery.net.httptext import FAILED, HttpRequest, Refusal, Response

log = logging.getLogger(__name__)

REQUESTS: Final = metrics.counters(
    "rookery_net_http_requests_total", "HTTP requests by route and status.", ("route", "status")
)


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The listening address and the limits of the HTTP server."""

    host: str = "127.0.0.1"
    """Name or address to listen on."""
    port: int = 9644
    """0 lets the system choose."""
    max_head_bytes: int = 8192
    """The request line and the headers together."""
    max_body_bytes: int = 1024 * 1024
    """The maximum size of a request's body."""
    max_connections: int = 256
    """Above this number, the session that is idle longest is closed, or else the new one."""
    idle_timeout_ms: int = 60_000
    """The time limit between requests."""
    receive_timeout_ms: int = 10_000
    """The time limit from a request's first byte to its last."""
    answer_timeout_ms: int = 30_000
    """The time limit for creating the response."""
    send_timeout_ms: int = 30_000
    """The time limit for the client to read the response."""
    leave_timeout_ms: int = 2_000
    """The time limit for the client to close its side after the last response."""


class SessionHost(Protocol):
    """The interface of the server that a session needs."""

    settings: HttpSettings
    is_stopping: bool

    def admit(self, session: HttpSession) -> bool:
        """Register a new session; return whether there is room for it."""

    def remove(self, session: HttpSession) -> None:
        """Remove a session."""

    def begin(self, request: HttpRequest, send: Callable[[Response], None]) -> None:
        """Start a request; `send` is called with the response."""


class _Phase(Enum):
    IDLE = "idle"
    RECEIVING = "receiving"
    ANSWERING = "answering"
    SENDING = "sending"
    LEAVING = "leaving"


_WAITING: Final = (_Phase.IDLE, _Phase.RECEIVING)


class HttpSession(asyncio.Protocol):
    """One client. Reading stops during a request, so later data stays in the socket."""

    def __init__(self, server: SessionHost) -> None:
        self.since = 0.0
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._peer = ""
        self._codec = HttpCodec(
            server.settings.max_head_bytes, server.settings.max_body_bytes, self._peer
        )
        self._phase = _Phase.IDLE
        self._timer: asyncio.TimerHandle | None = None
        self._is_last = False
        self._is_at_end = False
        self._is_unread = False
        settings = server.settings
        self._limits_ms = {
            _Phase.IDLE: settings.idle_timeout_ms,
            _Phase.RECEIVING: settings.receive_timeout_ms,
            _Phase.SENDING: settings.send_timeout_ms,
            _Phase.LEAVING: settings.leave_timeout_ms,
        }

    @property
    def is_waiting(self) -> bool:
        """Whether the session waits for the client."""
        return self._phase in _WAITING

    def stop(self) -> None:
        """Close when the request in progress, if any, is answered."""
        self._is_last = True
        if self._phase in _WAITING:
            self.abort()

    def abort(self) -> None:
        """Close immediately."""
        self._phase = _Phase.LEAVING
        if self._transport is not None:
            self._transport.abort()

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to wait for a request."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's differs only in class
        # Report every response that the client has not read completely.
        self._transport.set_write_buffer_limits(high=0)
        self._peer = self._codec.peer = address_name(transport.get_extra_info("peername"))
        if self._server.admit(self):
            self._enter(_Phase.IDLE)
        else:
            log.warning(
                "refused an HTTP connection: too many are open", extra={"client": self._peer}
            )
            self.abort()

    def data_received(self, data: bytes) -> None:
        """Process received data; data that arrives too late is read and dropped."""
        if self._phase is not _Phase.LEAVING:
            self._codec.receive(data)
        if self._phase in _WAITING:
            self._advance()

    def eof_received(self) -> bool:
        """Complete the request in progress, if any; otherwise close."""
        self._is_last = self._is_at_end = True
        return self._phase in (_Phase.ANSWERING, _Phase.SENDING)

    def pause_writing(self) -> None:
        """Record that the client has not read the whole response."""
        self._is_unread = True

    def resume_writing(self) -> None:
        """Continue when the client has read its response."""
        self._is_unread = False
        if self._phase is _Phase.SENDING:
            self._on_sent()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (the reason does not matter)
        """Remove the client."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._server.remove(self)

    # Requests and responses.

    def _advance(self) -> None:
        """Start the next request if it has arrived completely, else wait for the rest."""
        try:
            request = self._codec.next_request()
        except Refusal as refusal:
            self._refuse(refusal)
            return
        if request is not None:
            self._enter(_Phase.ANSWERING)
            self._read(is_wanted=False)
            self._server.begin(request, lambda response: self._answer(request, response))
            return
        if self._phase is _Phase.IDLE and self._codec.has_part:
            self._enter(_Phase.RECEIVING)
        if leave := self._codec.leave_to_send():
            self._write(leave)
        self._read(is_wanted=True)

    def _answer(self, request: HttpRequest, response: Response) -> None:
        try:
            self._send(response)
        except ValueError:
            log.exception("%s: the response cannot be sent", request.path)
            self._send(FAILED)

    def _send(self, response: Response) -> None:
        self._is_last = self._is_last or self._server.is_stopping
        data = self._codec.send(response, is_last=self._is_last)
        self._is_last = self._is_last or self._codec.is_over
        self._enter(_Phase.SENDING)
        self._read(is_wanted=False)
        self._write(data)
        if not self._is_unread:
            self._on_sent()

    def _on_sent(self) -> None:
        if self._is_last:
            self._leave()
            return
        self._enter(_Phase.IDLE)
        # Not directly: a client that sends many requests at once would cause deep recursion.
        self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._transport is not None and self._phase is _Phase.IDLE:
            self._advance()

    def _refuse(self, refusal: Refusal) -> None:
        """Reject a request before any route sees it, and close."""
        REQUESTS.labels("none", str(refusal.response.status.value)).inc()
        log.debug("refused a request: %s", refusal, extra={"client": self._peer})
        self._is_last = True
        self._send(refusal.response)

    def _leave(self) -> None:
        self._codec.clear()
        self._enter(_Phase.LEAVING)
        if self._transport is None or self._transport.is_closing():
            return
        if self._is_at_end:
            self._transport.close()
            return
        self._read(is_wanted=True)
        try:
            self._transport.write_eof()
        except OSError:
            self.abort()

    # Limits and timeouts.

    def _enter(self, phase: _Phase) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._phase = phase
        self.since = loop_seconds()
        if phase in self._limits_ms and self._transport is not None:
            self._timer = self._loop.call_later(self._limits_ms[phase] / 1000, self._expire)

    def _expire(self) -> None:
        if self._phase is _Phase.RECEIVING:
            self._refuse(Refusal(HTTPStatus.REQUEST_TIMEOUT, "the request took too long"))
        else:
            self.abort()

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def _read(self, *, is_wanted: bool) -> None:
        if self._transport is None or self._transport.is_closing() or self._is_at_end:
            return
        if is_wanted:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()
