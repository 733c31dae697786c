"""Outgoing answers: pieces, order, and released buffers."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from rookery.net.answers import AnswerBudget
from rookery.net.connection import Connection
from rookery.net.outbox import Answer, Budget, Outbox
from rookery.net.settings import ConnectionSettings
from rookery.testing.wait import wait_until_async
from rookery.testing.wire import MemoryTransport, Peer
from rookery.wire.frame import Frame
from tests.net.serving import answer, echo, listening, number_of, request

PATIENCE = 60
LARGE = bytes(range(256)) * 4096 * 8


class Slow(MemoryTransport):
    """A transport that has enough after every call."""

    outbox: Outbox

    def writelines(self, list_of_data: object) -> None:
        super().writelines(list_of_data)  # type: ignore[arg-type] # as the base has it
        self.outbox.is_writable = False


def slow_outbox() -> tuple[Outbox, Slow]:
    transport = Slow(Connection(echo, ConnectionSettings(), Budget()))
    transport.outbox = outbox = Outbox()
    outbox.transport = transport
    return outbox, transport


def sent(transport: MemoryTransport) -> bytes:
    return b"".join(part for call in transport.calls for part in call)


@given(st.lists(st.integers(0, 700_000), min_size=1, max_size=6))
def test_gathered_answers_are_sent_in_order_and_in_pieces(sizes: list[int]) -> None:
    async def check() -> None:
        outbox, transport = slow_outbox()
        parts = [bytes([number]) * size for number, size in enumerate(sizes)]
        for part in parts:
            outbox.gather([part], len(part))
        outbox.flush()
        while outbox.waiting:
            outbox.is_writable = True
            outbox.feed()
        assert sent(transport) == b"".join(parts)
        assert outbox.written == sum(sizes)
        assert all(sum(map(len, call)) <= 256 * 1024 for call in transport.calls)
        transport.abort()

    asyncio.run(check())


async def test_sent_buffers_are_released_before_the_rest_is_sent() -> None:
    outbox, transport = slow_outbox()
    first = bytearray(LARGE)
    outbox.gather([memoryview(first), LARGE], 2 * len(LARGE))
    for _ in range(len(LARGE) // (256 * 1024)):
        outbox.is_writable = True
        outbox.feed()
    first.clear()  # refused as long as there is a view of it
    assert 0 < outbox.waiting <= len(LARGE)
    transport.abort()


async def test_large_answer_is_held_and_counted_until_it_is_read() -> None:
    def handler(connection: Connection, frame: Frame) -> Answer:
        return answer(frame, LARGE)

    async with listening(handler, max_unsent_bytes=100_000) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        for number in range(5):
            peer.write_frame(request(number))
        await wait_until_async(lambda: any(c.is_stuck for c in listener.connections))
        (connection,) = listener.connections
        assert connection.held_bytes + connection.sent_bytes >= len(LARGE)
        assert connection.answers.used >= connection.held_bytes > 0
        for number in range(5):
            frame = await peer.read_frame()
            assert (number_of(frame), frame[4:] == LARGE) == (number, True)
        await wait_until_async(lambda: not connection.held_bytes)
        assert connection.sent_bytes == 5 * (len(LARGE) + 8)
        await peer.close()


async def test_the_rest_of_an_answer_is_sent_before_the_connection_closes() -> None:
    def handler(connection: Connection, frame: Frame) -> Answer:
        asyncio.get_running_loop().call_soon(connection.close)
        return answer(frame, LARGE)

    async with listening(handler, max_unsent_bytes=100_000) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        peer.write_frame(request(1))
        assert (await peer.read_frame())[4:] == LARGE
        assert await peer.read_to_end() == b""
        await peer.close()


async def test_promised_bytes_are_released_once() -> None:
    budget = AnswerBudget()
    later: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def handler(connection: Connection, frame: Frame) -> asyncio.Future[Answer]:
        connection.promise(1000)
        return later

    connection = Connection(handler, ConnectionSettings(), Budget(), answers=budget)
    transport = MemoryTransport(connection)
    transport.receive(b"\0\0\0\x08" + request(1))
    assert (budget.used, connection.held_bytes) == (1000, 1000)
    later.set_result([b"\0\0\0\x04", bytes(96)])
    await wait_until_async(lambda: transport.calls)
    assert (budget.used, connection.held_bytes) == (1000, 0)
    assert connection.sent_bytes == 100
    transport.abort()
