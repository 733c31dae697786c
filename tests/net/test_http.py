"""The HTTP server: methods, limits and slow clients."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from http import HTTPStatus
from random import Random
from typing import Any, TypeVar

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rookery.errors import ConfigError
from rookery.metrics import Registry
from rookery.net.http import HttpServer, health_route, metrics_route
from rookery.net.httpsession import REQUESTS, HttpSettings
from rookery.net.httptext import HttpRequest, Refusal, Response, as_json, as_text
from rookery.testing.wait import wait_until_async

T = TypeVar("T")
PATIENCE = 60
GET = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"


async def hello(request: HttpRequest) -> Response:
    return as_text(f"hello {request.query.get('name', 'you')}\n")


async def echo(request: HttpRequest) -> Response:
    return as_json(
        {
            "path": request.path,
            "body": request.body.decode(errors="replace"),
            "query": request.query,
        }
    )


async def fail(request: HttpRequest) -> Response:
    raise RuntimeError("a secret of ours")


async def big(request: HttpRequest) -> Response:
    return Response(b"x" * 50_000_000)


async def inject(request: HttpRequest) -> Response:
    return Response(headers={"Location": "/x\r\nSet-Cookie: a=b"})


async def refuse(request: HttpRequest) -> Response:
    raise Refusal(HTTPStatus.CONFLICT, "someone was faster")


class Gate:
    """A route that answers when the test says so."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.opened = asyncio.Event()
        self.is_done = False

    async def __call__(self, request: HttpRequest) -> Response:
        self.entered.set()
        await self.opened.wait()
        self.is_done = True
        return as_text("at last\n")


ROUTES = {
    "/hello": hello,
    "/": hello,
    "POST /echo": echo,
    "POST /hello": echo,
    "/fail": fail,
    "/big": big,
    "/inject": inject,
    "/refuse": refuse,
    "/static/*": echo,
}


@asynccontextmanager
async def serving(
    routes: dict[str, Any] | None = None,
    **settings: Any,  # fields of HttpSettings
) -> AsyncIterator[HttpServer]:
    server = HttpServer(routes or ROUTES, HttpSettings(port=0, **settings))
    await server.start()
    try:
        async with asyncio.timeout(PATIENCE):
            yield server
    finally:
        await server.stop(grace_ms=0)


async def in_thread(function: Callable[[], T]) -> T:
    return await asyncio.to_thread(function)


async def ask(
    server: HttpServer, method: str, target: str, body: bytes | None = None, **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    """Ask with Python's own client."""

    def run() -> tuple[http.client.HTTPResponse, bytes]:
        client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        try:
            client.request(method, target, body, headers)
            response = client.getresponse()
            return response, response.read()
        finally:
            client.close()

    return await in_thread(run)


@asynccontextmanager
async def connected(
    server: HttpServer,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def exchange(server: HttpServer, data: bytes, *, half_close: bool = False) -> bytes:
    """Send bytes, return all that comes until the server closes."""
    async with connected(server) as (reader, writer):
        writer.write(data)
        if half_close:
            writer.write_eof()
        return await reader.read()


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    """Read to the end, whether the server closes or resets."""
    received = b""
    with suppress(ConnectionResetError):
        while data := await reader.read(65536):
            received += data
    return received


def statuses(data: bytes) -> list[int]:
    return [int(part[:3]) for part in data.split(b"HTTP/1.1 ")[1:]]


async def test_get_and_head_are_answered() -> None:
    async with serving() as server:
        response, body = await ask(server, "GET", "/hello?name=a%20b&name=c+d")
        assert (response.status, body) == (200, b"hello c d\n")
        assert response.getheader("Content-Type") == "text/plain; charset=utf-8"
        response, body = await ask(server, "HEAD", "/hello")
        assert (response.status, body) == (200, b"")
        assert response.getheader("Content-Length") == "10"


async def test_post_is_answered() -> None:
    async with serving() as server:
        response, body = await ask(server, "POST", "/echo?q=", b"data")
        assert response.status == 200
        assert json.loads(body) == {"path": "/echo", "body": "data", "query": {"q": ""}}


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/hello/", 404),
        ("GET", "/static", 404),
        ("GET", "/static/", 200),
        ("GET", "/static/a/b%2Fc", 200),
        ("GET", "/", 200),
        ("POST", "/nothing", 404),
        ("PUT", "/hello", 405),
        ("POST", "/static/a", 405),
        ("GET", "/echo", 405),
        ("HEAD", "/echo", 405),
        ("GET", "/fail", 500),
        ("GET", "/inject", 500),
        ("GET", "/refuse", 409),
        ("GET", "http://elsewhere/hello", 200),
        ("GET", "http://elsewhere", 200),
        ("GET", "elsewhere:80", 400),
        ("OPTIONS", "*", 400),
        ("GET", "/%ff", 400),
        ("GET", "/hello?" + "&".join("a=b" for _ in range(101)), 400),
    ],
)
async def test_statuses_are_returned(method: str, target: str, status: int) -> None:
    async with serving() as server:
        response, _ = await ask(server, method, target)
        assert response.status == status


async def test_status_405_lists_the_allowed_methods() -> None:
    async with serving() as server:
        response, _ = await ask(server, "PUT", "/hello")
        assert response.getheader("Allow") == "GET, HEAD, POST"
        response, _ = await ask(server, "GET", "/echo")
        assert response.getheader("Allow") == "POST"


async def test_failure_is_logged_and_not_sent_to_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving() as server:
        with caplog.at_level(logging.ERROR):
            _, body = await ask(server, "GET", "/fail")
        assert body == b"internal error\n"
        assert "a secret of ours" in caplog.text
        _, body = await ask(server, "GET", "/hello")
        assert body == b"hello you\n"


async def test_a_header_cannot_be_injected() -> None:
    async with serving() as server:
        assert b"Set-Cookie" not in await exchange(
            server, b"GET /inject HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )


async def test_connection_is_kept_alive() -> None:
    async with serving() as server:

        def run() -> list[bytes]:
            client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
            bodies, names = [], set()
            for number in range(50):
                client.request("GET", f"/hello?name={number}")
                names.add(client.sock.getsockname())
                bodies.append(client.getresponse().read())
            client.close()
            assert len(names) == 1
            return bodies

        assert await in_thread(run) == [b"hello %d\n" % number for number in range(50)]


@pytest.mark.parametrize("half_close", [False, True])
async def test_pipelined_requests_are_answered_in_order(half_close: bool) -> None:
    requests = b"".join(
        b"GET /hello?name=%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(1000)
    )
    last = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nConnection: Close\r\n\r\nend"
    async with serving() as server:
        received = await exchange(server, requests + last, half_close=half_close)
    assert statuses(received) == [200] * 1001
    at = [received.index(b"hello %d\n" % number) for number in range(1000)]
    assert at == sorted(at)
    assert received.endswith(b'"query": {}}\n')


@pytest.mark.parametrize(
    ("request_head", "is_kept"),
    [
        (b"GET /hello HTTP/1.0\r\n\r\n", False),
        # h11 keeps no connection of HTTP/1.0, whatever it asks for
        (b"GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", False),
        (b"GET /hello HTTP/1.1\r\nHost: x\r\nConnection: foo, close\r\n\r\n", False),
        (b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n", True),
        (b"\r\n\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n", True),
    ],
)
async def test_client_decides_whether_the_connection_is_kept_alive(
    request_head: bytes, is_kept: bool
) -> None:
    end = b"GET /hello HTTP/1.0\r\n\r\n"
    async with serving() as server:
        received = await exchange(server, request_head + end)
    assert statuses(received) == [200] * (1 + is_kept)


async def test_request_can_arrive_byte_by_byte() -> None:
    data = b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody"
    async with serving() as server, connected(server) as (reader, writer):
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in data:
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        received = await reader.read()
    assert statuses(received) == [200]
    assert b'"body": "body"' in received


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GARBAGE\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n", 400),  # a TLS handshake
        (b"GET  /hello HTTP/1.1\r\n", 400),
        (b"GET /hello\r\n", 400),
        (b"GET /hello HTTP/11\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        (b"GET /hello HTTP/1.1\r\n\r\n", 400),  # no Host
        (b"GET /hello HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nHost : x\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nHost: x\nA: b\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nHost: x\r\nA: \0\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nHost: x\r\nA: \x01\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nHost: x\r\nA: a\rb\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\nHost: x\r\nnonsense\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1_0\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n", 413),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999999999\r\n\r\n", 413),
        (b"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: miracles\r\n\r\n", 417),
        (b"GET /" + b"a" * 9000, 414),
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414),
        (b"GET /hello HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 9000, 431),
        (b"GET /hello HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 9000 + b"\r\n\r\n", 431),
        (b"GET /hello HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 101 + b"\r\n", 431),
        # The client continues to send: it must get the answer, not a reset.
        (b"GET /hello HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 3_000_000, 431),
    ],
)
async def test_bad_requests_are_refused_and_the_connection_closed(data: bytes, status: int) -> None:
    async with serving() as server:
        received = await exchange(server, data)
        assert statuses(received) == [status]
        assert b"Connection: close" in received
        assert statuses(await exchange(server, b"GET /hello HTTP/1.0\r\n\r\n")) == [200]


async def test_no_invalid_input_breaks_the_server(caplog: pytest.LogCaptureFixture) -> None:
    whole = b"POST /echo?a=%20b HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
    random = Random(7)
    async with serving() as server:
        for _ in range(300):
            data = bytearray(whole * 2)
            for _ in range(random.randint(1, 4)):
                data[random.randrange(len(data))] = random.randrange(256)
            cut = random.randrange(1, len(data))
            received = await exchange(server, bytes(data[:cut]), half_close=True)
            assert received == b"" or received.startswith(b"HTTP/1.1 ")
            assert b"internal error" not in received
        assert statuses(await exchange(server, b"GET /hello HTTP/1.0\r\n\r\n")) == [200]
    assert "Traceback" not in caplog.text


async def test_expect_100_continue_is_answered() -> None:
    async with serving() as server, connected(server) as (reader, writer):
        writer.write(
            b"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n"
            b"Connection: close\r\n\r\n"
        )
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ok")
        assert b'"body": "ok"' in await reader.read()


async def test_slow_request_is_disconnected() -> None:
    async with serving(receive_timeout_ms=100) as server, connected(server) as (reader, writer):
        answer = asyncio.create_task(reader.read())
        writer.write(b"GET /hello HTTP/1.1\r\n")
        while not answer.done():
            writer.write(b"A: b\r\n")
            await asyncio.wait([answer], timeout=0.01)
        assert statuses(await answer) == [408]


async def test_slow_body_is_disconnected() -> None:
    async with serving(receive_timeout_ms=50) as server:
        received = await exchange(
            server, b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nbody"
        )
        assert statuses(received) == [408]


@pytest.mark.parametrize("sent", [b"", GET])
async def test_an_idle_connection_is_closed(sent: bytes) -> None:
    async with serving(idle_timeout_ms=50) as server, connected(server) as (reader, writer):
        writer.write(sent)
        assert statuses(await until_closed(reader)) == ([200] if sent else [])


async def test_client_that_never_closes_is_disconnected() -> None:
    async with serving(leave_timeout_ms=50) as server, connected(server) as (reader, writer):
        writer.write(b"GET /hello HTTP/1.0\r\n\r\n")
        assert statuses(await reader.read()) == [200]
        await wait_until_async(lambda: not server.open_connections)


async def test_client_that_does_not_read_is_disconnected() -> None:
    async with serving(send_timeout_ms=50) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n")
            await wait_until_async(lambda: server.accepted and not server.open_connections)


async def test_large_answer_is_sent_whole() -> None:
    async with serving() as server:
        _, body = await ask(server, "GET", "/big")
        assert len(body) == 50_000_000


async def test_slow_route_is_cancelled() -> None:
    gate = Gate()
    async with serving({"/gate": gate}, answer_timeout_ms=50) as server:
        response, _ = await ask(server, "GET", "/gate")
        assert response.status == 503
        assert not gate.is_done


async def test_idle_connection_is_closed_when_the_server_is_full() -> None:
    gate = Gate()
    async with (
        serving({**ROUTES, "/gate": gate}, max_connections=2) as server,
        connected(server) as (busy_reader, busy),
    ):
        busy.write(b"GET /gate HTTP/1.0\r\n\r\n")
        await gate.entered.wait()
        async with connected(server) as (idle_reader, idle):
            idle.write(GET)
            await idle_reader.readuntil(b"hello you\n")
            assert statuses(await exchange(server, b"GET /hello HTTP/1.0\r\n\r\n")) == [200]
            assert await until_closed(idle_reader) == b""
        gate.opened.set()
        assert statuses(await busy_reader.read()) == [200]


async def test_slow_clients_do_not_block_others() -> None:
    async with serving(max_connections=20) as server, AsyncExitStack() as stack:
        for _ in range(100):
            _, writer = await stack.enter_async_context(connected(server))
            writer.write(b"GET /hello HTTP/1.1\r\nA: ")
        assert statuses(await exchange(server, b"GET /hello HTTP/1.0\r\n\r\n")) == [200]
        await wait_until_async(lambda: server.open_connections <= 20)


async def test_new_connection_is_refused_when_all_are_busy() -> None:
    gate = Gate()
    async with (
        serving({**ROUTES, "/gate": gate}, max_connections=1) as server,
        connected(server) as (busy_reader, busy),
    ):
        busy.write(b"GET /gate HTTP/1.0\r\n\r\n")
        await gate.entered.wait()
        async with connected(server) as (reader, _):
            assert await until_closed(reader) == b""
        gate.opened.set()
        assert statuses(await busy_reader.read()) == [200]


async def test_client_reset_does_not_affect_the_server() -> None:
    gate = Gate()
    async with serving({**ROUTES, "/gate": gate}) as server:
        async with connected(server) as (_, writer):
            writer.write(b"GET /gate HTTP/1.1\r\nHost: x\r\n\r\n")
            await gate.entered.wait()
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        gate.opened.set()
        await wait_until_async(lambda: not server.open_connections)
        assert gate.is_done
        assert statuses(await exchange(server, b"GET /hello HTTP/1.0\r\n\r\n")) == [200]


async def test_stop_answers_requests_in_flight() -> None:
    gate = Gate()
    async with (
        serving({**ROUTES, "/gate": gate}) as server,
        connected(server) as (idle_reader, idle),
        connected(server) as (reader, writer),
    ):
        idle.write(GET)
        await idle_reader.readuntil(b"hello you\n")
        writer.write(b"GET /gate HTTP/1.1\r\nHost: x\r\n\r\n")
        await gate.entered.wait()
        stopping = asyncio.create_task(server.stop(grace_ms=PATIENCE * 1000))
        assert await until_closed(idle_reader) == b""
        assert not stopping.done()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)
        gate.opened.set()
        received = await reader.read()
        assert received.endswith(b"at last\n")
        assert b"Connection: close" in received
        writer.close()
        await stopping


async def test_stop_does_not_wait_forever() -> None:
    gate = Gate()
    async with serving({"/gate": gate}) as server, connected(server) as (_, writer):
        writer.write(b"GET /gate HTTP/1.1\r\nHost: x\r\n\r\n")
        await gate.entered.wait()
        await server.stop(grace_ms=20)
        assert server.open_connections == 0
        assert not gate.is_done


async def test_a_port_in_use_is_named() -> None:
    async with serving() as server:
        second = HttpServer(ROUTES, HttpSettings(port=server.port))
        with pytest.raises(ConfigError, match=f"127.0.0.1:{server.port}"):
            await second.start()
        with pytest.raises(ConfigError, match="started"):
            _ = second.port


async def test_metrics_are_served() -> None:
    registry = Registry()
    registry.gauges("rookery_log_files_open", "Now.", ("disk",)).labels('a"\n').set(3)
    async with serving({"/metrics": metrics_route(registry)}) as server:
        response, body = await ask(server, "GET", "/metrics")
    assert response.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
    [metric] = text_string_to_metric_families(body.decode())
    assert [(sample.labels, sample.value) for sample in metric.samples] == [({"disk": 'a"\n'}, 3)]


async def test_health_reports_problems() -> None:
    disk = ""
    checks = {"disk": lambda: disk, "log": lambda: ""}
    async with serving({"/health/ready": health_route(checks)}) as server:
        response, body = await ask(server, "GET", "/health/ready")
        assert (response.status, json.loads(body)) == (200, {"ok": True, "problems": {}})
        disk = "full"
        response, body = await ask(server, "GET", "/health/ready")
        assert (response.status, json.loads(body)) == (
            503,
            {"ok": False, "problems": {"disk": "full"}},
        )


async def test_requests_are_counted_by_route_not_by_path() -> None:
    async with serving() as server:
        static = REQUESTS.labels("/static/*", "200")
        nothing = REQUESTS.labels("none", "404")
        before = static.value, nothing.value
        for number in range(3):
            await ask(server, "GET", f"/static/{number}")
            await ask(server, "GET", f"/nothing/{number}")
        assert (static.value, nothing.value) == (before[0] + 3, before[1] + 3)
