"""A small proxy made of a `Connection` and an `Upstream`: back-pressure in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rookery.net.connection import Connection
from rookery.net.listener import Listener
from rookery.net.outbox import Answer
from rookery.net.settings import UpstreamSettings
from rookery.net.upstream import Upstream, connect, relay
from rookery.testing.wait import wait_until_async
from rookery.testing.wire import Peer, add_length
from rookery.wire.frame import Frame, renumber
from tests.net.serving import Parking, answer, echo, listening, number_of, request

PATIENCE = 60


class PassThrough:
    """Forwards the requests of one client to one broker."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._is_joined = False

    def __call__(self, connection: Connection, frame: Frame) -> asyncio.Future[Answer]:
        if not self._is_joined:
            self._is_joined = True
            relay(connection, self._upstream)
        number = int.from_bytes(frame[4:8], "big")
        return self._upstream.submit([frame], lambda response: renumber(response, number))


@asynccontextmanager
async def proxied(broker: Listener, **settings: int) -> AsyncIterator[tuple[Listener, Upstream]]:
    options = UpstreamSettings(max_in_flight=1000, **settings)  # type: ignore[arg-type] # all given are numbers
    upstream = await connect("127.0.0.1", broker.port, options)
    async with (
        listening(PassThrough(upstream), max_unsent_bytes=200_000, max_in_flight=1000) as listener,
        asyncio.timeout(PATIENCE),
    ):
        try:
            yield listener, upstream
        finally:
            upstream.close()
            await upstream.wait_closed()


async def test_requests_and_answers_keep_their_correlation_ids() -> None:
    async with listening(echo) as broker, proxied(broker) as (listener, _):
        peer = await Peer.connect(listener.port)
        numbers = [3, 1, 4, 1, 5, 9, 2, 6]
        peer.write(b"".join(add_length(request(number, b"%d" % number)) for number in numbers))
        for number in numbers:
            frame = await peer.read_frame()
            assert (number_of(frame), frame[4:]) == (number, b"%d" % number)
        await peer.close()


async def test_slow_broker_throttles_its_client() -> None:
    parking = Parking()
    async with (
        listening(parking, max_in_flight=1) as broker,
        proxied(broker, max_unsent_bytes=100_000, max_queued_bytes=500_000) as (listener, upstream),
    ):
        peer = await Peer.connect(listener.port)
        body = bytes(100_000)
        for number in range(200):
            peer.write_frame(request(number, body))
        await parking.has(1)
        await wait_until_async(lambda: upstream.is_full)
        # one request beyond the bound, and no more
        assert upstream.queued_bytes < 700_000
        for number in range(200):
            await parking.has(number + 1)
            assert upstream.queued_bytes < 700_000
            parking.release(number)
            assert number_of(await peer.read_frame()) == number
        assert not upstream.is_full
        await peer.close()


async def test_slow_client_throttles_the_broker() -> None:
    made = 0

    def handler(connection: Connection, frame: Frame) -> Answer:
        nonlocal made
        made += 1
        return answer(frame, bytes(100_000))

    async with (
        listening(handler, max_unsent_bytes=100_000) as broker,
        proxied(broker) as (listener, _),
    ):
        peer = await Peer.connect(listener.port)
        peer.write(b"".join(add_length(request(number)) for number in range(900)))
        await peer.drain()
        await wait_until_async(lambda: any(c.is_stuck for c in broker.connections))
        assert made < 600
        for number in range(900):
            assert number_of(await peer.read_frame()) == number
        await peer.close()


async def test_disconnecting_client_closes_its_upstream() -> None:
    async with listening(echo) as broker, proxied(broker) as (listener, upstream):
        peer = await Peer.connect(listener.port)
        peer.write_frame(request(1))
        await peer.read_frame()

        await peer.close()

        await upstream.wait_closed()
        await wait_until_async(lambda: not broker.connections)


async def test_failing_upstream_closes_its_client() -> None:
    async with listening(echo) as broker, proxied(broker) as (listener, upstream):
        peer = await Peer.connect(listener.port)
        peer.write_frame(request(1))
        await peer.read_frame()

        for connection in list(broker.connections):
            connection.abort()

        await upstream.wait_closed()
        await wait_until_async(lambda: not listener.connections)
        called: list[str] = []
        upstream.when_lost(lambda: called.append("late"))
        await wait_until_async(lambda: called == ["late"])
        await peer.close()
