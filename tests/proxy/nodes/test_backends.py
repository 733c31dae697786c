"""Connections to brokers: opened when needed, in order, and each fails alone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from struct import pack

import pytest

from rookery.errors import Unavailable
from rookery.net.callqueue import CallOptions
from rookery.net.upstream import Upstream, connect
from rookery.proxy.nodes.backends import Backend, BackendPool, NotSentError
from rookery.proxy.nodes.nodeversions import common_versions
from rookery.testing.ports import HOST, free_port
from rookery.wire.frame import Frame
from rookery.wire.messages.api_versions import ApiVersion

OPTIONS = CallOptions(timeout_ms=20_000)


class EchoBroker:
    """Answers requests with their bodies; a body `die` ends the connection without an answer."""

    def __init__(self) -> None:
        self.port = free_port()
        self.connections = 0

    async def __aenter__(self) -> EchoBroker:
        self._server = await asyncio.start_server(self._serve, HOST, self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                request = await reader.readexactly(size)
                if request[10:] == b"die":
                    return
                body = request[10:]
                writer.write(pack(">i", 4 + len(body)) + request[4:8] + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def open(self, _: int) -> Upstream:
        return await connect(HOST, self.port)


def send(pool: BackendPool, broker_id: int, body: bytes) -> asyncio.Future[bytes]:
    def read(frame: Frame) -> bytes:
        return bytes(frame[4:])

    return pool.get(broker_id).submit([pack(">hhih", 0, 0, 0, -1) + body], read, OPTIONS)


def ignore(_: bool) -> None:
    """Take no notice."""


def ignore_large(_: Backend, size: int) -> None:
    """Take no notice."""


async def outcome(future: Awaitable[bytes]) -> object:
    try:
        return await future
    except Unavailable as error:
        return type(error)


def test_requests_wait_in_order_for_their_connection() -> None:
    async def run() -> list[bytes]:
        async with EchoBroker() as broker:
            pool = BackendPool(broker.open, ignore, ignore_large)
            answers = [send(pool, 1, b"%d" % number) for number in range(20)]
            bodies = [await answer for answer in answers]
            assert broker.connections == 1
            pool.close()
            return bodies

    assert asyncio.run(run()) == [b"%d" % number for number in range(20)]


def test_broken_connection_fails_its_requests_and_the_next_opens_another() -> None:
    async def run() -> list[object]:
        async with EchoBroker() as broker:
            pool = BackendPool(broker.open, ignore, ignore_large)
            results = [await outcome(send(pool, 1, body)) for body in (b"a", b"die", b"b")]
            results.append(await outcome(send(pool, 2, b"c")))
            assert broker.connections == 3
            pool.close()
            return results

    assert asyncio.run(run()) == [b"a", Unavailable, b"b", b"c"]


def test_request_to_an_unreachable_broker_was_not_sent() -> None:
    async def run() -> list[object]:
        port = free_port()
        pool = BackendPool(lambda _: connect(HOST, port), ignore, ignore_large)
        return [await outcome(send(pool, 1, b"a")) for _ in range(2)]

    assert asyncio.run(run()) == [NotSentError, NotSentError]


def test_closed_pool_sends_nothing() -> None:
    async def run() -> object:
        async with EchoBroker() as broker:
            pool = BackendPool(broker.open, ignore, ignore_large)
            waiting = send(pool, 1, b"a")
            pool.close()
            late = send(pool, 2, b"b")
            return [await outcome(waiting), await outcome(late), broker.connections]

    assert asyncio.run(run()) == [NotSentError, NotSentError, 0]


def test_client_waits_while_much_waits_for_a_connection() -> None:
    async def run() -> list[bool]:
        told: list[bool] = []
        async with EchoBroker() as broker:
            pool = BackendPool(broker.open, told.append, ignore_large)
            answers = [send(pool, 1, b"x" * 1_000_000) for _ in range(5)]
            assert told == [True]
            await asyncio.gather(*answers)
            pool.close()
        return told

    assert asyncio.run(run())[-1] is False


@pytest.mark.parametrize(
    ("ranges", "common"),
    [
        ([(0, 9)], [(0, 9)]),
        ([(0, 9), (3, 12)], [(3, 9)]),
        ([(0, 2), (3, 12)], []),
    ],
)
def test_versions_are_those_of_all_brokers(
    ranges: list[tuple[int, int]], common: list[tuple[int, int]]
) -> None:
    offered = [[ApiVersion(api_key=1, min_version=low, max_version=high)] for low, high in ranges]

    rows = common_versions(offered)

    assert [(row.min_version, row.max_version) for row in rows] == common
