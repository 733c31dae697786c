"""Requests that go from a client's connection to a broker's and back without a future."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rookery.errors import ProtocolError, Unavailable
from rookery.net.callqueue import CallOptions
from rookery.net.connection import Connection
from rookery.net.outbox import Answer, Budget
from rookery.net.settings import ConnectionSettings, UpstreamSettings
from rookery.net.upstream import Upstream, relay
from rookery.testing.wait import wait_until_async
from rookery.testing.wire import MemoryTransport, add_length
from rookery.wire.frame import Frame
from tests.net.serving import number_of, request

ONE_WAY = CallOptions(is_answered=False)
SECRET = CallOptions(client_id="other")


class Relay:
    """A client and a broker in memory, and a proxy between them."""

    def __init__(
        self,
        options: CallOptions | None = None,
        read: Callable[[Frame], Answer] | None = None,
        **settings: int,
    ) -> None:
        self.budget = Budget()
        self.upstream = Upstream("memory", 0, UpstreamSettings(**settings))  # type: ignore[arg-type] # all given are numbers
        self.broker = MemoryTransport(self.upstream)
        self._options = options or CallOptions()
        self._read = read
        self.connection = Connection(self._start, ConnectionSettings(), self.budget)
        self.client = MemoryTransport(self.connection)
        relay(self.connection, self.upstream)

    def _start(self, _: Connection, frame: Frame) -> Answer | Awaitable[Answer]:
        number = int.from_bytes(frame[4:8], "big")
        call = self.upstream.relay([frame], number, self._options, self._read)
        return None if call.is_done else call

    def ask(self, *numbers: int) -> None:
        """Have the client send requests, all at once."""
        self.client.receive(b"".join(add_length(request(n, b"body %d" % n)) for n in numbers))

    def asked(self) -> list[int]:
        """Return the correlation ids that the broker has seen."""
        return [int.from_bytes(frame[4:8], "big") for frame in self.broker.frames()]

    def answer(self, *numbers: int) -> None:
        """Have the broker answer requests, all at once."""
        self.broker.receive(b"".join(add_length(n.to_bytes(4, "big") + b"done") for n in numbers))

    def answered(self) -> list[int]:
        """Return the correlation ids of the client's answers."""
        return list(map(number_of, self.client.frames()))


async def test_request_passes_both_ways_without_a_turn_of_the_loop() -> None:
    relayed = Relay()

    relayed.ask(77)
    assert relayed.broker.frames() == [request(0, b"body 77")]
    relayed.answer(0)

    assert relayed.client.frames() == [(77).to_bytes(4, "big") + b"done"]
    assert relayed.budget.used == 0
    assert relayed.upstream.in_flight == relayed.connection.in_flight == 0


async def test_answers_that_arrive_together_are_written_in_one_call() -> None:
    relayed = Relay()
    relayed.ask(9, 8, 7, 6)

    relayed.answer(0, 1, 2)

    assert len(relayed.client.calls) == 1
    assert relayed.answered() == [9, 8, 7]
    relayed.answer(3)
    assert relayed.answered() == [9, 8, 7, 6]


async def test_answer_waits_for_the_ones_before_it() -> None:
    futures: list[asyncio.Future[Answer]] = []
    relayed = Relay()

    def start(connection: Connection, frame: Frame) -> Awaitable[Answer]:
        if not futures:
            futures.append(asyncio.get_running_loop().create_future())
            return futures[0]
        return relayed.upstream.relay([frame], 2)

    connection = Connection(start, ConnectionSettings(), Budget())
    client = MemoryTransport(connection)
    relay(connection, relayed.upstream)
    client.receive(add_length(request(1)) + add_length(request(2)))

    relayed.answer(0)
    assert client.frames() == []
    futures[0].set_result([b"\0\0\0\4", b"\0\0\0\1"])

    await wait_until_async(lambda: [number_of(frame) for frame in client.frames()] == [1, 2])


async def test_requests_beyond_the_bound_follow_in_order() -> None:
    relayed = Relay(max_in_flight=2)

    relayed.ask(5, 6, 7, 8)
    assert relayed.asked() == [0, 1]
    relayed.answer(0)
    relayed.answer(1, 2)
    relayed.answer(3)

    assert relayed.asked() == [0, 1, 2, 3]
    assert relayed.answered() == [5, 6, 7, 8]
    assert relayed.upstream.queued_bytes == 0


async def test_request_without_an_answer_leaves_no_place() -> None:
    relayed = Relay(ONE_WAY)

    relayed.ask(1, 2)

    assert relayed.asked() == [0, 1]
    assert relayed.client.calls == []
    assert relayed.budget.used == relayed.connection.in_flight == relayed.upstream.in_flight == 0


async def test_client_id_can_be_replaced() -> None:
    relayed = Relay(SECRET)
    named = request(1, b"\0\2me" + b"rest")

    relayed.client.receive(add_length(named))

    assert relayed.broker.frames() == [request(0, b"\0\5other" + b"rest")]


async def test_response_can_be_converted() -> None:
    relayed = Relay(read=lambda frame: [b"\0\0\0\5", b"\0\0\0\1", frame[4:5]])

    relayed.ask(1)
    relayed.answer(0)

    assert relayed.client.frames() == [b"\0\0\0\1d"]


async def test_response_that_cannot_be_read_closes_the_client_after_earlier_answers() -> None:
    def read(frame: Frame) -> Answer:
        if number_of(frame) == 1:
            raise ProtocolError("unreadable")
        return [b"\0\0\0\4", bytes(frame[:4])]

    relayed = Relay(read=read)
    relayed.ask(1, 2, 3)

    relayed.answer(0, 1, 2)

    await wait_until_async(relayed.client.is_closing)
    assert relayed.answered() == [0]
    await wait_until_async(lambda: relayed.upstream.is_closed)
    assert relayed.budget.used == 0


async def test_missing_response_closes_both_ends_and_late_ones_are_dropped() -> None:
    relayed = Relay(CallOptions(timeout_ms=30))
    relayed.ask(1)
    relayed.answer(0)
    relayed.ask(2)

    await wait_until_async(relayed.client.is_closing)

    assert relayed.answered() == [1]
    await wait_until_async(lambda: relayed.upstream.is_closed)
    assert relayed.budget.used == 0


async def test_wrong_correlation_id_closes_both_ends() -> None:
    relayed = Relay()
    relayed.ask(1, 2)

    relayed.answer(0, 5)

    await wait_until_async(relayed.client.is_closing)
    assert relayed.broker.is_aborted
    assert relayed.answered() == [1]


async def test_lost_client_releases_its_bytes() -> None:
    relayed = Relay()
    relayed.ask(1, 2)

    relayed.connection.abort()

    await wait_until_async(lambda: relayed.upstream.is_closed)
    await wait_until_async(lambda: relayed.budget.used == 0)


async def test_relayed_request_can_be_awaited() -> None:
    relayed = Relay()
    first, second = (relayed.upstream.relay([request(n)], n) for n in (7, 8))

    waiting = asyncio.ensure_future(first)
    await asyncio.sleep(0)
    relayed.answer(0)

    assert await waiting == [b"\0\0\0\x08\0\0\0\x07", b"done"]
    relayed.upstream.close()
    with pytest.raises(Unavailable, match="closed"):
        await second


async def test_relay_refuses_a_request_without_header_room_or_connection() -> None:
    relayed = Relay(max_in_flight=1, max_queued_bytes=10)
    with pytest.raises(ProtocolError, match="at least 8"):
        await relayed.upstream.relay([b"short"], 1)
    sent, queued = (relayed.upstream.relay([request(n)], n) for n in (1, 2))
    with pytest.raises(Unavailable, match="wait to be sent"):
        await relayed.upstream.relay([request(3)], 3)

    relayed.upstream.close()

    with pytest.raises(Unavailable, match="closed"):
        await relayed.upstream.relay([request(4)], 4)
    assert sent.is_done
    assert queued.is_done
