"""A proxy in front of an S3 server, which delays or fails requests, or loses responses.

    async with S3Proxy(server.port) as proxy:
        proxy.add(Rule(S3Fault.SWALLOW, method="PUT", times=1))
        store = open_store(server.url("bucket", proxy.endpoint))

Only the heads of requests are parsed. Bodies and responses are passed on, at hundreds of megabytes
per second. A benchmark runs it as a program (`python -m rookery.testing.s3proxy --help`), so that
it takes no time from the measured process.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from types import TracebackType
from typing import Final, Self, cast

from rookery.testing.ports import HOST, free_port

_MAX_HEAD: Final = 65_536
_LENGTH: Final = re.compile(rb"(?i)\r\ncontent-length:[ \t]*(\d{1,15})")
_BODY: Final = b"<Error><Code>%s</Code><Message>This is a drill.</Message></Error>"


class S3Fault(Enum):
    """The faults that a request can get."""

    DELAY = "delay"
    """The request is executed, and answered later."""
    ERROR = "error"
    """The request is not executed; the response is an error."""
    DROP = "drop"
    """The request is not executed, and the connection ends."""
    SWALLOW = "swallow"
    """The request is executed, but the connection ends without a response."""


@dataclass
class Rule:
    """The requests that get a fault: those that meet all conditions."""

    fault: S3Fault
    method: str = ""
    """As in HTTP, and LIST for the listing of a bucket; empty for all."""
    path: str = ""
    """A part of the request's path."""
    rate: float = 1.0
    """The share of such requests that get the fault."""
    times: int | None = None
    """The maximum number of times."""
    delay_ms: float = 0.0
    status: int = 503

    def matches(self, method: str, path: str, random: Random) -> bool:
        """Return whether the fault applies to a request, which then counts."""
        if self.times == 0 or self.method not in ("", method) or self.path not in path:
            return False
        if self.rate < 1.0 and random.random() >= self.rate:
            return False
        if self.times is not None:
            self.times -= 1
        return True


@dataclass
class Delays:
    """The delays of responses, in milliseconds."""

    put_ms: float = 0.0
    get_ms: float = 0.0
    """For all requests except PUT."""


@dataclass
class _Request:
    """A request that is under way."""

    delay_ms: float
    rule: Rule | None
    left: int
    """Bytes of its body that have not come yet."""
    held: list[bytes] = field(default_factory=list)
    is_answered: bool = False


class S3Proxy:
    """A server that passes requests on to another, except where its rules apply."""

    def __init__(self, upstream_port: int, *, delays: Delays | None = None, seed: int = 0) -> None:
        """Choose a port; start nothing. The seed makes rules with a rate repeatable."""
        self.upstream_port = upstream_port
        self.port = free_port()
        self.delays = delays or Delays()
        self.requests: Counter[str] = Counter()
        """The number of requests by method; LIST is a method here."""
        self.faults: Counter[S3Fault] = Counter()
        self._rules: list[Rule] = []
        self._random = Random(seed)
        self._server: asyncio.Server | None = None
        self._clients: set[_Client] = set()

    @property
    def endpoint(self) -> str:
        """Return its address."""
        return f"http://{HOST}:{self.port}"

    def add(self, rule: Rule) -> None:
        """Add a rule; the first rule that matches a request counts."""
        self._rules.append(rule)

    def clear(self) -> None:
        """Drop all rules."""
        self._rules.clear()

    async def start(self) -> None:
        """Start to accept connections."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Client(self), HOST, self.port)

    async def close(self) -> None:
        """Stop accepting connections, and end the existing ones."""
        if self._server is not None:
            self._server.close()
            for client in list(self._clients):
                client.end()
            await self._server.wait_closed()
            self._server = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def add_client(self, client: _Client) -> None:
        """Remember a connection."""
        self._clients.add(client)

    def remove_client(self, client: _Client) -> None:
        """Forget a connection."""
        self._clients.discard(client)

    def judge(self, method: str, path: str) -> tuple[float, Rule | None]:
        """Count a request; return the delay of its response, and its fault."""
        if method == "GET" and "list-type=" in path:
            method = "LIST"
        self.requests[method] += 1
        delay_ms = self.delays.put_ms if method == "PUT" else self.delays.get_ms
        for rule in self._rules:
            if rule.matches(method, path, self._random):
                self.faults[rule.fault] += 1
                return delay_ms + rule.delay_ms, rule
        return delay_ms, None


class _Client(asyncio.Protocol):
    """A client's connection, with one of its own to the server."""

    def __init__(self, proxy: S3Proxy) -> None:
        self._proxy = proxy
        self._loop = asyncio.get_running_loop()
        self._head = bytearray()
        # Not more than one, as clients do not send a second before the first is answered.
        self._request: _Request | None = None
        self._waiting: deque[bytes] = deque()
        self._upstream: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._is_last = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._proxy.add_client(self)
        self._connecting = self._loop.create_task(self._connect())

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.end()

    def data_received(self, data: bytes) -> None:
        if self._request is not None and self._request.left:
            body, data = data[: self._request.left], data[self._request.left :]
            self._take_body(self._request, body)
        if data:
            self._take_head(data)

    def pause_writing(self) -> None:
        if self._upstream is not None:
            self._upstream.pause_reading()

    def resume_writing(self) -> None:
        if self._upstream is not None:
            self._upstream.resume_reading()

    def answer(self, data: bytes) -> None:
        """Pass on the server's response: now, later or never."""
        request = self._request
        if request is None or request.is_answered:
            self._transport.write(data)
        elif request.rule is not None and request.rule.fault is S3Fault.SWALLOW:
            self.end()
        else:
            request.held.append(data)
            if len(request.held) == 1:
                self._loop.call_later(request.delay_ms / 1000, self._release, request)

    def server_left(self) -> None:
        """End after all of the server's response is passed on."""
        if self._request is not None and self._request.held and not self._request.is_answered:
            self._is_last = True
        else:
            self._transport.close()

    def hold(self) -> None:
        """Stop reading the request, because the server is slow to receive it."""
        self._transport.pause_reading()

    def go_on(self) -> None:
        """Continue to read."""
        self._transport.resume_reading()

    def end(self) -> None:
        """End both connections at once."""
        self._proxy.remove_client(self)
        if self._connecting is not None:
            self._connecting.cancel()
        for transport in (self._transport, self._upstream):
            if transport is not None:
                transport.abort()

    async def _connect(self) -> None:
        try:
            upstream, _ = await self._loop.create_connection(
                lambda: _Upstream(self), HOST, self._proxy.upstream_port
            )
        except OSError:
            self.end()
            return
        self._upstream = upstream
        while self._waiting:
            upstream.write(self._waiting.popleft())

    def _send(self, data: bytes) -> None:
        if self._upstream is None:
            self._waiting.append(data)
        else:
            self._upstream.write(data)

    def _take_head(self, data: bytes) -> None:
        self._head += data
        head, end, rest = bytes(self._head).partition(b"\r\n\r\n")
        if not end:
            if len(head) > _MAX_HEAD:
                self.end()
            return
        self._head.clear()
        method, path, _ = head.split(b" ", 2)
        length = _LENGTH.search(head)
        delay_ms, rule = self._proxy.judge(method.decode(), path.decode())
        if rule is not None and rule.fault is S3Fault.DROP:
            self.end()
            return
        self._request = _Request(delay_ms, rule, int(length[1]) if length else 0)
        if rule is None or rule.fault is not S3Fault.ERROR:
            self._send(head + end)
        self._take_body(self._request, rest)

    def _take_body(self, request: _Request, body: bytes) -> None:
        request.left -= len(body)
        if request.rule is None or request.rule.fault is not S3Fault.ERROR:
            if body:
                self._send(body)
        elif not request.left:
            self._loop.call_later(request.delay_ms / 1000, self._refuse, request.rule.status)

    def _release(self, request: _Request) -> None:
        request.is_answered = True
        if not self._transport.is_closing():
            self._transport.writelines(request.held)
            if self._is_last:
                self._transport.close()

    def _refuse(self, status: int) -> None:
        body = _BODY % (b"SlowDown" if status == 503 else b"InternalError")
        head = b"HTTP/1.1 %d Drill\r\nContent-Length: %d\r\n\r\n" % (status, len(body))
        if not self._transport.is_closing():
            self._transport.write(head + body)


class _Upstream(asyncio.Protocol):
    """The connection to the server."""

    def __init__(self, client: _Client) -> None:
        self._client = client

    def data_received(self, data: bytes) -> None:
        self._client.answer(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._client.server_left()

    def pause_writing(self) -> None:
        self._client.hold()

    def resume_writing(self) -> None:
        self._client.go_on()


async def _serve(args: argparse.Namespace) -> None:
    proxy = S3Proxy(args.upstream_port, delays=Delays(args.put_ms, args.get_ms))
    proxy.port = args.port or proxy.port
    async with proxy:
        print(proxy.endpoint, flush=True)  # noqa: T201 (the process that started it reads this)
        await asyncio.Event().wait()


def main(argv: Sequence[str] | None = None) -> None:
    """Run a proxy until it is interrupted."""
    parser = argparse.ArgumentParser(description="A slow way to an S3 server of this machine.")
    parser.add_argument("upstream_port", type=int, help="where the server listens")
    parser.add_argument("--port", type=int, default=0, help="where to listen")
    parser.add_argument(
        "--put-ms", type=float, default=0.0, help="how much later a PUT is answered"
    )
    parser.add_argument("--get-ms", type=float, default=0.0, help="how much later all others are")
    asyncio.run(_serve(parser.parse_args(argv)))


if __name__ == "__main__":
    main()
