"""The login service over real connections: its states, its delay and its time limit."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from weakref import WeakSet

import pytest

from rookery.clock import SystemClock, SystemRandom
from rookery.errors import ApiError, ErrorCode, Unavailable
from rookery.net.connection import Connection
from rookery.net.listener import Listener, ListenerSettings
from rookery.net.outbox import Answer, Budget
from rookery.net.settings import ConnectionSettings
from rookery.net.upstream import Upstream, connect
from rookery.security.mechanisms.plain import PlainServer
from rookery.security.sasl import refusal
from rookery.service.listen.login import LoginService, LoginSettings, failure_pause
from rookery.testing.accounts import MemoryAccounts
from rookery.testing.wait import wait_until_async
from rookery.testing.wire import MemoryTransport
from rookery.wire.codec import peek, read_request, request_frame, response_frame
from rookery.wire.frame import Frame
from rookery.wire.messages.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest

TIMEOUT_MS = 20_000
ALICE, BOB = b"\0alice\0secret", b"\0bob\0secret"


class LoginServer:
    """Serves the two SASL APIs and nothing else."""

    def __init__(self, settings: LoginSettings, clock: SystemClock) -> None:
        self.port = 0
        self.started = 0
        """How many messages of logins have arrived."""
        accounts = MemoryAccounts({"alice": "secret", "bob": "secret"})
        self.service = LoginService(settings, accounts, clock, SystemRandom())
        self.connections: list[Connection] = []

    async def __call__(self, connection: Connection, frame: Frame) -> Answer:
        if connection not in self.connections:
            self.connections.append(connection)
        key, version, number = peek(frame)
        if key == SASL_HANDSHAKE.key:
            _, chosen = read_request(SASL_HANDSHAKE, frame)
            try:
                answer = self.service.handshake(connection, chosen.mechanism)
            except ApiError as error:
                answer = SASL_HANDSHAKE.refuse(chosen, error.code)
            return response_frame(SASL_HANDSHAKE, version, number, answer)
        _, message = read_request(SASL_AUTHENTICATE, frame)
        self.started += 1
        reply = await self.service.authenticate(connection, message)
        return response_frame(SASL_AUTHENTICATE, version, number, reply)


@asynccontextmanager
async def serve(
    *, handshake_timeout_ms: int = 10_000, **settings: Any
) -> AsyncIterator[tuple[LoginServer, Upstream]]:
    """Start a server and connect to it."""
    options = LoginSettings(("PLAIN", "SCRAM-SHA-256"), **settings)
    server = LoginServer(options, SystemClock())
    limits = ConnectionSettings(
        requires_authentication=True, handshake_timeout_ms=handshake_timeout_ms
    )
    listener = Listener(server, ListenerSettings(port=0, connection=limits))
    await listener.start()
    server.port = listener.port
    upstream = await connect("127.0.0.1", listener.port)
    try:
        yield server, upstream
    finally:
        upstream.close()
        await upstream.wait_closed()
        await listener.stop()
        server.service.close()


async def choose(upstream: Upstream, mechanism: str) -> ErrorCode:
    request = SaslHandshakeRequest(mechanism=mechanism)
    return (await upstream.call(SASL_HANDSHAKE, 1, request, TIMEOUT_MS)).error_code


async def send(upstream: Upstream, message: bytes) -> Any:
    request = SaslAuthenticateRequest(auth_bytes=message)
    return await upstream.call(SASL_AUTHENTICATE, 2, request, TIMEOUT_MS)


async def test_login_sets_principal_mechanism_and_lifetime() -> None:
    async with serve(max_session_ms=60_000) as (server, upstream):
        assert await choose(upstream, "PLAIN") is ErrorCode.NONE
        answer = await send(upstream, ALICE)
        assert answer.error_code is ErrorCode.NONE
        assert answer.session_lifetime_ms == 60_000
        session = server.connections[0].session
        assert (session.principal, session.mechanism) == ("User:alice", "PLAIN")
        assert session.expires_ms > SystemClock().monotonic_ms()


async def test_second_handshake_within_a_login_closes_the_connection() -> None:
    async with serve() as (_, upstream):
        assert await choose(upstream, "PLAIN") is ErrorCode.NONE
        assert await choose(upstream, "PLAIN") is ErrorCode.ILLEGAL_SASL_STATE
        with pytest.raises(Unavailable):
            await send(upstream, ALICE)


async def test_second_login_of_the_same_user_is_accepted() -> None:
    async with serve(max_session_ms=60_000) as (_, upstream):
        for _ in range(2):
            assert await choose(upstream, "PLAIN") is ErrorCode.NONE
            assert (await send(upstream, ALICE)).session_lifetime_ms == 60_000


async def test_second_login_as_another_user_closes_the_connection() -> None:
    async with serve(failure_delay_ms=1) as (server, upstream):
        await choose(upstream, "PLAIN")
        await send(upstream, ALICE)
        await choose(upstream, "PLAIN")
        answer = await send(upstream, BOB)
        assert answer.error_code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert "cannot change its principal" in answer.error_message
        assert server.connections[0].session.principal == "User:alice"
        with pytest.raises(Unavailable):
            await choose(upstream, "PLAIN")


async def test_second_login_with_another_mechanism_closes_the_connection() -> None:
    async with serve() as (_, upstream):
        await choose(upstream, "PLAIN")
        await send(upstream, ALICE)
        code = await choose(upstream, "SCRAM-SHA-256")
        assert code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        with pytest.raises(Unavailable):
            await choose(upstream, "PLAIN")


async def test_time_of_a_failed_check_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []

    async def sleep(seconds: float) -> None:
        delays.append(seconds)

    async with serve(failure_delay_ms=1_000) as (_, upstream):
        await choose(upstream, "PLAIN")
        monkeypatch.setattr("rookery.service.listen.login.sleep", sleep)
        # The message came at the first of these times, and was refused at the second one.
        times = iter((5.0, 5.25))
        monkeypatch.setattr("rookery.service.listen.login.loop_seconds", lambda: next(times))
        answer = await send(upstream, b"\0alice\0wrong")
        assert answer.error_code is ErrorCode.SASL_AUTHENTICATION_FAILED
        assert delays == [0.75]


@pytest.mark.parametrize(
    ("step", "passed", "pause"),
    [(0.0, 0.3, 0.0), (0.5, 0.0, 0.5), (0.5, 0.125, 0.375), (0.5, 0.75, 0.25), (0.5, 1.0, 0.5)],
)
def test_failure_is_answered_at_the_next_step(step: float, passed: float, pause: float) -> None:
    assert failure_pause(step, passed) == pause


async def test_failed_scram_login_ends_the_exchange() -> None:
    async with serve(failure_delay_ms=1) as (server, upstream):
        await choose(upstream, "SCRAM-SHA-256")
        answer = await send(upstream, b"n,,n=alice,r=0123456789")
        nonce = bytes(answer.auth_bytes).split(b",")[0]
        final = await send(upstream, b"c=biws," + nonce + b",p=" + b"AAAA" * 10 + b"AAA=")
        assert (final.error_code, final.error_message) == (
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            "invalid credentials",
        )
        assert server.connections[0].session.principal is None
        with pytest.raises(Unavailable):
            await send(upstream, ALICE)


@pytest.mark.parametrize(
    ("mechanism", "message"),
    [
        pytest.param("PLAIN", b"\0alice\0wrong", id="wrong password"),
        pytest.param("SCRAM-SHA-256", b"x", id="malformed message"),
        pytest.param("", ALICE, id="no mechanism"),
    ],
)
async def test_failed_logins_leave_nothing_for_the_collector(
    mechanism: str, message: bytes
) -> None:
    """It runs rarely, and each of these could keep a message of half a megabyte."""
    failed: WeakSet[Connection] = WeakSet()
    async with serve(failure_delay_ms=1) as (server, _):
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                upstream = await connect("127.0.0.1", server.port)
                if mechanism:
                    await choose(upstream, mechanism)
                await send(upstream, message)
                failed.add(server.connections.pop())
                await upstream.wait_closed()
            await wait_until_async(lambda: not failed, "no connections")
        finally:
            gc.enable()


async def test_client_without_a_login_is_closed_after_the_time_limit() -> None:
    async with serve(handshake_timeout_ms=50) as (_, upstream):
        assert await choose(upstream, "PLAIN") is ErrorCode.NONE
        async with asyncio.timeout(TIMEOUT_MS / 1000):
            await upstream.wait_closed()


async def test_lost_clients_are_not_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that come, send a password and go must not occupy the thread one after another."""
    hashed: list[bytes] = []
    is_free = threading.Event()

    def respond(_self: object, message: bytes) -> bytes:
        hashed.append(message)
        is_free.wait(TIMEOUT_MS / 1000)
        raise refusal()

    monkeypatch.setattr(PlainServer, "respond", respond)
    async with serve(failure_delay_ms=1) as (server, first), asyncio.timeout(TIMEOUT_MS / 1000):
        others = [await connect("127.0.0.1", server.port) for _ in range(20)]
        tasks = []
        for number, upstream in enumerate((first, *others)):
            await choose(upstream, "PLAIN")
            tasks.append(asyncio.ensure_future(send(upstream, b"%d" % number)))
            await wait_until_async(lambda: bool(hashed))
        await wait_until_async(lambda: server.started == len(tasks))
        for upstream in others[:-1]:
            upstream.close()
            await upstream.wait_closed()
        is_free.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        others[-1].close()
        await others[-1].wait_closed()
    assert hashed == [b"0", b"20"]


async def test_too_many_waiting_logins_close_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_free, has_begun = threading.Event(), threading.Event()

    def respond(_self: object, _message: bytes) -> bytes:
        has_begun.set()
        is_free.wait(TIMEOUT_MS / 1000)
        return b""

    monkeypatch.setattr(PlainServer, "respond", respond)
    async with serve(failure_delay_ms=1, max_waiting=1) as (server, first):
        others = [await connect("127.0.0.1", server.port) for _ in range(2)]
        tasks = []
        for upstream in (first, *others):
            await choose(upstream, "PLAIN")
            tasks.append(asyncio.ensure_future(send(upstream, ALICE)))
            await wait_until_async(lambda: has_begun.is_set() and server.started == len(tasks))
        with pytest.raises(Unavailable):
            await tasks[2]
        is_free.set()
        assert [(await task).error_code for task in tasks[:2]] == [ErrorCode.NONE] * 2
        for upstream in others:
            upstream.close()
            await upstream.wait_closed()


async def test_repeated_logins_keep_no_memory() -> None:
    async with serve() as (server, upstream):
        for _ in range(3):
            await choose(upstream, "PLAIN")
            await send(upstream, ALICE)
        # One of them is the listener's.
        assert len(server.connections[0]._when_lost) == 1


def test_time_limit_of_a_login_is_ten_seconds() -> None:
    settings = ConnectionSettings(requires_authentication=True)
    assert settings.handshake_timeout_ms == 10_000
    assert settings.max_unauthenticated_frame_bytes == 512 * 1024


async def test_login_does_not_end_the_pause_of_another() -> None:
    """A proxy pauses a client whose broker is full, also while the client logs in again."""
    options = LoginSettings(("PLAIN",))
    server = LoginServer(options, SystemClock())
    connection = Connection(server, ConnectionSettings(), Budget())
    transport = MemoryTransport(connection)
    chosen = request_frame(SASL_HANDSHAKE, 1, 1, "test", SaslHandshakeRequest(mechanism="PLAIN"))
    message = SaslAuthenticateRequest(auth_bytes=ALICE)
    transport.receive(b"".join(chosen))
    await wait_until_async(lambda: len(transport.frames()) == 1)
    transport.receive(b"".join(request_frame(SASL_AUTHENTICATE, 2, 2, "test", message)))
    connection.pause()
    await wait_until_async(lambda: len(transport.frames()) == 2)

    assert not transport.is_reading()
    connection.resume()
    assert transport.is_reading()
    connection.abort()
    server.service.close()
