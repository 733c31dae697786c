"""A client connection: answers in order, limits, back-pressure and closing."""

from __future__ import annotations

import asyncio
import gc
import logging
import struct
import tracemalloc
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import pytest

from rookery.errors import ProtocolError
from rookery.net.connection import Connection
from rookery.net.outbox import Answer, Budget
from rookery.net.settings import ConnectionSettings
from rookery.testing.wait import wait_until_async
from rookery.testing.wire import MemoryTransport, Peer, add_length
from rookery.wire.frame import Frame
from tests.net.serving import Parking, answer, echo, listening, number_of, request

PATIENCE = 60


async def test_immediate_answers_are_written_in_one_call() -> None:
    connection = Connection(echo, ConnectionSettings(), Budget())
    transport = MemoryTransport(connection)
    transport.receive(b"".join(add_length(request(number, b"x")) for number in range(50)))
    assert len(transport.calls) == 1
    assert [number_of(frame) for frame in transport.frames()] == list(range(50))
    assert connection.requests == 50
    assert connection.sent_bytes == 50 * 9
    connection.abort()


async def test_answers_completed_together_are_written_in_one_call() -> None:
    parking = Parking()
    transport = MemoryTransport(Connection(parking, ConnectionSettings(), Budget()))
    transport.receive(b"".join(add_length(request(number)) for number in range(10)))
    parking.release(*reversed(range(10)))
    await wait_until_async(lambda: transport.calls)
    assert [number_of(frame) for frame in transport.frames()] == list(range(10))
    assert len(transport.calls) == 1
    transport.abort()


async def test_pipelined_requests_are_answered_in_order() -> None:
    parking = Parking()
    async with listening(parking) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        for number in range(5):
            peer.write_frame(request(number))
        await parking.has(5)
        parking.release(3, 1, 4)
        parking.release(0, 2)
        assert [number_of(await peer.read_frame()) for _ in range(5)] == [0, 1, 2, 3, 4]
        await peer.close()


async def test_immediate_answer_waits_for_earlier_ones() -> None:
    parking = Parking()

    def handler(connection: Connection, frame: Frame) -> Answer | asyncio.Future[Answer]:
        is_first = frame[7] == 0
        return parking(connection, frame) if is_first else answer(frame)

    async with listening(handler) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        for number in range(3):
            peer.write_frame(request(number))
        await wait_until_async(lambda: sum(c.requests for c in listener.connections) == 3)
        parking.release(0)
        assert [number_of(await peer.read_frame()) for _ in range(3)] == [0, 1, 2]
        await peer.close()


async def test_handlers_can_be_coroutines_and_give_no_answer() -> None:
    async def later(frame: Frame) -> Answer:
        await asyncio.sleep(0)
        return None if frame[7] % 2 else answer(frame)

    def handler(connection: Connection, frame: Frame) -> object:
        return None if frame[7] == 4 else later(frame)

    async with listening(handler) as listener, asyncio.timeout(PATIENCE):  # type: ignore[arg-type] # object is both of what a handler may return
        peer = await Peer.connect(listener.port)
        for number in range(7):
            peer.write_frame(request(number))
        assert [number_of(await peer.read_frame()) for _ in range(3)] == [0, 2, 6]
        await peer.close()


async def test_frames_of_any_size_arrive_in_slices() -> None:
    async with listening(echo) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        bodies = [b"s" * 10, b"m" * 40_000, b"L" * 3_000_000, b"e"]
        for number, body in enumerate(bodies):
            peer.write_frame(request(number, body))
        for number, body in enumerate(bodies):
            frame = await peer.read_frame()
            assert (number_of(frame), frame[4:] == body) == (number, True)
        await peer.close()


async def test_requests_in_flight_are_bounded() -> None:
    parking = Parking()
    async with listening(parking, max_in_flight=3) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        peer.write(b"".join(add_length(request(number)) for number in range(1000)))
        await parking.has(3)
        (connection,) = listener.connections
        for number in range(997):
            assert connection.in_flight <= 3
            parking.release(number)
            assert number_of(await peer.read_frame()) == number
            await parking.has(number + 4)
        assert max(parking.parked) == 999
        await peer.close()


async def test_unanswered_bytes_are_bounded_and_one_frame_always_fits() -> None:
    parking = Parking()
    body = bytes(200_000)
    async with (
        listening(parking, max_unanswered_bytes=100_000) as listener,
        asyncio.timeout(PATIENCE),
    ):
        peer = await Peer.connect(listener.port)
        for number in range(20):
            peer.write_frame(request(number, body))
        for number in range(20):
            await parking.has(number + 1)
            assert next(iter(listener.connections)).in_flight == 1
            parking.release(number)
            assert number_of(await peer.read_frame()) == number
        await peer.close()


async def test_client_that_never_reads_takes_bounded_memory() -> None:
    started = 0
    page = bytes(100_000)

    def handler(connection: Connection, frame: Frame) -> Answer:
        nonlocal started
        started += 1
        return answer(frame, bytearray(page))

    async with listening(handler, max_unsent_bytes=500_000) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        tracemalloc.start()
        peer.write(b"".join(add_length(request(number)) for number in range(1000)))
        await peer.drain()
        await wait_until_async(lambda: any(c.is_stuck for c in listener.connections))
        stuck_at = started
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        # other clients are served meanwhile
        other = await Peer.connect(listener.port)
        assert number_of(await other.exchange(request(7))) == 7
        assert started == stuck_at + 1
        # bounds: what waits to be sent, one answer more, and what a batch may gather
        assert stuck_at < 200
        assert held < 4_000_000
        # and when it does read, everything comes, in order
        assert [number_of(await peer.read_frame()) for _ in range(1000)] == list(range(1000))
        await other.close()
        await peer.close()


async def test_client_that_never_reads_is_disconnected() -> None:
    def handler(connection: Connection, frame: Frame) -> Answer:
        return answer(frame, bytes(1_000_000))

    async with listening(handler, idle_timeout_ms=100) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        peer.write(b"".join(add_length(request(number)) for number in range(1000)))
        await wait_until_async(lambda: any(c.is_stuck for c in listener.connections))
        await lost(*listener.connections)
        assert len(await peer.read_to_end()) < 100_000_000
        await peer.close()


async def lost(*connections: Connection) -> None:
    """Wait until connections are gone."""
    gone = [asyncio.Event() for _ in connections]
    for connection, event in zip(connections, gone, strict=True):
        connection.when_lost(event.set)
        if not connection.is_made:
            event.set()
    for event in gone:
        await event.wait()


async def test_shared_budget_stops_and_resumes_reading() -> None:
    parking, budget = Parking(), Budget(100_000)
    async with listening(parking, budget=budget) as listener, asyncio.timeout(PATIENCE):
        first, second = [await Peer.connect(listener.port) for _ in range(2)]
        first.write_frame(request(0, bytes(150_000)))
        await parking.has(1)
        # the budget is full: the other connection may bring a chunk, but then waits
        for number in range(1, 20):
            second.write_frame(request(number, bytes(60_000)))
        await parking.has(2)
        assert len(parking.parked) <= 3
        assert budget.used < 100_000 + 150_000 + 3 * 65_536
        for number in range(20):
            await parking.has(number + 1)
            parking.release(number)
            frame = await (first if number == 0 else second).read_frame()
            assert number_of(frame) == number
        await wait_until_async(lambda: budget.used == 0)
        await first.close()
        await second.close()


async def test_unfinished_frames_alone_cannot_block_the_budget() -> None:
    budget = Budget(200_000)
    async with listening(echo, budget=budget) as listener, asyncio.timeout(PATIENCE):
        peers = [await Peer.connect(listener.port) for _ in range(10)]
        whole = add_length(request(5, bytes(1_000_000)))
        for peer in peers:
            peer.write(whole[:100_000])
        await wait_until_async(lambda: budget.used >= 200_000)
        for peer in peers:
            peer.write(whole[100_000:])
        for peer in peers:
            assert len(await peer.read_frame()) == 1_000_004
        assert budget.used == 0
        for peer in peers:
            await peer.close()


async def test_budget_is_released_when_clients_disconnect() -> None:
    parking, budget = Parking(), Budget()
    async with (
        listening(parking, budget=budget, linger_ms=50) as listener,
        asyncio.timeout(PATIENCE),
    ):
        peer = await Peer.connect(listener.port)
        for number in range(3):
            peer.write_frame(request(number, bytes(1000)))
        peer.write(add_length(request(3, bytes(50_000)))[:30_000])
        await wait_until_async(lambda: budget.used > 33_000)
        (connection,) = listener.connections
        await peer.close()
        await lost(connection)
        assert budget.used == 3 * 1012
        parking.release(1)
        parking.parked[0][1].cancel()
        parking.parked[2][1].set_exception(ValueError("late"))
        await wait_until_async(lambda: budget.used == 0)


async def test_handler_is_notified_when_its_client_disconnects() -> None:
    told = asyncio.Event()

    def handler(connection: Connection, frame: Frame) -> asyncio.Future[Answer]:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        connection.when_lost(told.set)
        undo = connection.when_lost(lambda: pytest.fail("it was undone"))
        undo()
        return future

    async with listening(handler, linger_ms=50) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        peer.write_frame(request(1))
        await wait_until_async(lambda: any(c.in_flight for c in listener.connections))
        await peer.close()
        await told.wait()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (struct.pack(">i", -1), "a frame of -1 bytes"),
        (struct.pack(">i", 0), "a frame of 0 bytes"),
        (struct.pack(">i", 2**31 - 1), "at most"),
        (struct.pack(">i", 104_857_601), "at most 104857600"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "speaks HTTP"),
        (b"\x16\x03\x01\x00\xf4\x01\x00\x00\xf0\x03\x03", "speaks TLS"),
    ],
)
async def test_invalid_bytes_close_only_their_connection(
    data: bytes, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(echo) as listener, asyncio.timeout(PATIENCE):
        good, bad = [await Peer.connect(listener.port) for _ in range(2)]
        bad.write(add_length(request(1)) + data)
        assert number_of((await bad.read_to_end())[4:]) == 1
        assert says in caplog.text
        assert number_of(await good.exchange(request(2))) == 2
        await good.close()
        await bad.close()


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("kind", [ProtocolError, ValueError])
async def test_exception_in_a_handler_closes_only_its_connection(
    kind: type[Exception], is_late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> Answer:
        await asyncio.sleep(0)
        raise kind("that was wrong")

    def handler(connection: Connection, frame: Frame) -> object:
        if frame[7] != 1:
            return answer(frame)
        if is_late:
            return fail()
        raise kind("that was wrong")

    async with listening(handler) as listener, asyncio.timeout(PATIENCE):  # type: ignore[arg-type] # as above
        good, bad = [await Peer.connect(listener.port) for _ in range(2)]
        bad.write(b"".join(add_length(request(number)) for number in range(3)))
        # what came before is answered; what came after is not
        assert await bad.read_to_end() == b"".join(map(bytes, answer(request(0))))
        assert number_of(await good.exchange(request(2))) == 2
        assert "that was wrong" in caplog.text
        has_stack = any(record.exc_info for record in caplog.records)
        assert has_stack == (kind is ValueError)
        await good.close()
        await bad.close()


async def test_a_cancelled_request_closes_its_connection() -> None:
    parking = Parking()
    async with listening(parking) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        peer.write_frame(request(0))
        await parking.has(1)
        parking.parked[0][1].cancel()
        assert await peer.read_to_end() == b""
        await peer.close()


async def test_half_closed_clients_get_their_answers() -> None:
    parking = Parking()
    async with listening(parking, max_in_flight=2) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        for number in range(4):
            peer.write_frame(request(number))
        peer.write(b"\0\0")
        peer.write_end()
        for number in range(4):
            await parking.has(number + 1)
            parking.release(number)
        data = await peer.read_to_end()
        assert data == b"".join(bytes(part) for n in range(4) for part in answer(request(n)))
        await peer.close()


async def test_close_completes_requests_in_flight() -> None:
    parking = Parking()
    async with listening(parking) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        peer.write_frame(request(0))
        await parking.has(1)
        (connection,) = listener.connections
        connection.close()
        peer.write_frame(request(1))
        await peer.drain()
        parking.release(0)
        assert number_of((await peer.read_to_end())[4:]) == 0
        assert list(parking.parked) == [0]
        await peer.close()


async def test_close_does_not_wait_forever() -> None:
    parking = Parking()
    async with listening(parking, linger_ms=50) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        peer.write_frame(request(0))
        await parking.has(1)
        (connection,) = listener.connections
        connection.close()
        assert await peer.read_to_end() == b""
        await lost(connection)
        await peer.close()


async def test_idle_clients_are_disconnected_and_busy_ones_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    parking = Parking()
    async with listening(parking, idle_timeout_ms=100) as listener, asyncio.timeout(PATIENCE):
        idle, busy = [await Peer.connect(listener.port) for _ in range(2)]
        idle.write_frame(request(0))
        await parking.has(1)
        parking.release(0)
        busy.write_frame(request(1))
        await parking.has(2)
        await idle.read_to_end()
        assert "it sent no request" in caplog.text
        parking.release(1)
        assert number_of(await busy.read_frame()) == 1
        await idle.close()
        await busy.close()


async def test_silent_clients_are_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with listening(echo, handshake_timeout_ms=50) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        assert await peer.read_to_end() == b""
        assert "the handshake was not finished" in caplog.text
        await peer.close()


@pytest.mark.parametrize(
    ("greets", "limits"),
    [
        (False, {"handshake_timeout_ms": 1000}),
        (True, {"handshake_timeout_ms": 60_000, "receive_timeout_ms": 500}),
    ],
    ids=["before the first request", "after it"],
)
async def test_slow_loris_clients_are_disconnected(greets: bool, limits: dict[str, Any]) -> None:
    async with listening(echo, **limits) as listener, asyncio.timeout(PATIENCE):
        good = await Peer.connect(listener.port)
        assert number_of(await good.exchange(request(7))) == 7
        peers = [await Peer.connect(listener.port) for _ in range(50)]

        async def trickle(peer: Peer, number: int) -> None:
            """Send a byte at a time until the connection is cut."""
            if greets:
                await peer.exchange(request(number))
            cut = asyncio.ensure_future(peer.read_to_end())
            for byte in add_length(request(number, bytes(100_000))):
                # uvloop's transport raises if it was cut just before; asyncio's does not
                with suppress(RuntimeError):
                    peer.write(bytes([byte]))
                done, _ = await asyncio.wait([cut], timeout=0.05)
                if done:
                    return
            raise AssertionError("never cut")

        async def be_served() -> None:
            while len(listener.connections) > 1:
                assert number_of(await good.exchange(request(7))) == 7
                await asyncio.sleep(0.01)

        await asyncio.gather(be_served(), *(trickle(peer, n) for n, peer in enumerate(peers)))
        for peer in (good, *peers):
            await peer.close()


async def ask_for_ever(peer: Peer) -> None:
    while True:
        await peer.exchange(request(3))


async def test_authentication_raises_the_limit_and_ends_the_handshake() -> None:
    def handler(connection: Connection, frame: Frame) -> Answer:
        if bytes(frame[8:]) == b"let me in":
            connection.set_principal("User:me")
        return answer(frame, str(connection.session.principal).encode())

    settings: dict[str, Any] = {
        "requires_authentication": True,
        "max_unauthenticated_frame_bytes": 100,
        "handshake_timeout_ms": 300,
    }
    async with listening(handler, **settings) as listener, asyncio.timeout(PATIENCE):
        stranger, client = [await Peer.connect(listener.port) for _ in range(2)]
        assert (await stranger.exchange(request(1)))[4:] == b"None"
        stranger.write_frame(request(2, bytes(200)))
        assert await stranger.read_to_end() == b""
        assert (await client.exchange(request(1, b"let me in")))[4:] == b"User:me"
        assert (await client.exchange(request(2, bytes(200_000))))[4:] == b"User:me"
        waiter = await Peer.connect(listener.port)
        # a client that asks but never authenticates is cut all the same
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await ask_for_ever(waiter)
        assert (await client.exchange(request(4)))[4:] == b"User:me"
        for peer in (stranger, client, waiter):
            await peer.close()


async def test_limit_frames_takes_effect_with_the_next_frame() -> None:
    def handler(connection: Connection, frame: Frame) -> Answer:
        connection.limit_frames(100, minimum=0)
        return [add_length(frame)]

    async with listening(handler) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        peer.write(add_length(request(1)) + add_length(b"") + add_length(bytes(101)))
        assert await peer.read_to_end() == add_length(request(1)) + add_length(b"")
        await peer.close()


async def test_closed_connections_are_garbage_collected() -> None:
    accepted: WeakSet[Connection] = WeakSet()
    async with listening(echo) as listener, asyncio.timeout(PATIENCE):
        for _ in range(20):
            peer = await Peer.connect(listener.port)
            await peer.exchange(request(1))
            accepted.update(listener.connections)
            await peer.close()
        assert len(accepted) > 0
        await wait_until_async(lambda: not listener.connections)
    gc.collect()
    assert not list(accepted)


async def test_half_closed_client_gets_all_pipelined_answers() -> None:
    async with listening(echo) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        for number in range(500):
            peer.write_frame(request(number))
        peer.write_end()
        assert [number_of(await peer.read_frame()) for _ in range(500)] == list(range(500))
        assert await peer.read_to_end() == b""
        await peer.close()


async def test_client_with_many_requests_does_not_starve_others() -> None:
    order: list[int] = []

    def handler(_: Connection, frame: Frame) -> Answer:
        order.append(int.from_bytes(frame[4:8], "big"))
        return answer(frame)

    connection = Connection(handler, ConnectionSettings(), Budget())
    transport = MemoryTransport(connection)
    transport.receive(b"".join(add_length(request(number)) for number in range(1000)))
    asyncio.get_running_loop().call_soon(order.append, -1)
    await wait_until_async(lambda: len(order) == 1001)
    assert order.index(-1) < 200
    assert [number for number in order if number >= 0] == list(range(1000))
    connection.abort()


async def test_every_callback_is_called_even_if_one_unregisters_itself() -> None:
    connection, transport = await served()
    called: list[str] = []

    def leave() -> None:
        called.append("first")
        undo()

    undo = connection.when_lost(leave)
    connection.when_lost(lambda: called.append("second"))
    transport.abort()
    await wait_until_async(lambda: called == ["first", "second"])


async def test_callback_for_a_disconnected_client_is_called_unless_unregistered() -> None:
    connection, transport = await served()
    lost = asyncio.Event()
    connection.when_lost(lost.set)
    transport.abort()
    await lost.wait()
    called: list[str] = []

    connection.when_lost(lambda: called.append("kept"))
    undo = connection.when_lost(lambda: called.append("undone"))
    undo()

    assert called == []
    await wait_until_async(lambda: called == ["kept"])


async def served(handler: Any = echo, **settings: Any) -> tuple[Connection, MemoryTransport]:
    """A connection whose handshake is complete, over memory."""
    connection = Connection(handler, ConnectionSettings(**settings), Budget())
    transport = MemoryTransport(connection)
    transport.receive(add_length(request(1000)))
    return connection, transport


def numbers(transport: MemoryTransport) -> list[int]:
    """The requests that were answered, but for the first."""
    return [number_of(frame) for frame in transport.frames()][1:]


async def test_paused_connection_starts_no_request_until_it_is_resumed() -> None:
    connection, transport = await served()
    connection.pause()
    connection.pause()
    assert not transport.is_reading()
    # the bytes in flight when reading stopped
    transport.receive(add_length(request(1)) + add_length(request(2)))
    assert (numbers(transport), connection.requests) == ([], 1)
    connection.resume()
    # the other pause lasts
    assert not transport.is_reading()
    connection.resume()
    assert transport.is_reading()
    assert numbers(transport) == [1, 2]
    connection.resume()
    connection.abort()
    await wait_until_async(lambda: not connection.is_made)
    connection.pause()
    connection.resume()
    connection.mute(10)


async def test_pause_by_a_handler_stops_further_requests() -> None:
    def handler(connection: Connection, frame: Frame) -> Answer:
        if frame[7] == 1:
            connection.pause()
        return answer(frame)

    connection, transport = await served(handler)
    transport.receive(b"".join(add_length(request(number)) for number in range(4)))
    assert numbers(transport) == [0, 1]
    assert not transport.is_reading()
    connection.resume()
    assert numbers(transport) == [0, 1, 2, 3]
    assert transport.is_reading()
    connection.abort()


async def test_answers_are_sent_while_paused_and_muted() -> None:
    parking = Parking()
    connection, transport = await served(parking)
    parking.release(1000)
    transport.receive(add_length(request(1)))
    connection.pause()
    connection.mute(60_000)
    parking.release(1)
    await wait_until_async(lambda: numbers(transport) == [1])
    connection.abort()


async def test_muted_connection_starts_no_request_until_the_mute_ends() -> None:
    connection, transport = await served()
    connection.mute(20)
    assert not transport.is_reading()
    transport.receive(add_length(request(1)))
    assert numbers(transport) == []
    await wait_until_async(transport.is_reading)
    assert numbers(transport) == [1]
    connection.abort()


async def test_longest_of_several_mutes_applies() -> None:
    connection, transport = await served()
    ended: list[str] = []
    connection.mute(60)
    connection.mute(20)
    connection.mute(0)
    asyncio.get_running_loop().call_later(0.03, ended.append, "short")
    await wait_until_async(transport.is_reading)
    assert ended == ["short"]
    connection.mute(10)
    connection.mute(50)
    asyncio.get_running_loop().call_later(0.02, ended.append, "long")
    await wait_until_async(transport.is_reading)
    assert ended == ["short", "long"]
    connection.abort()


async def test_a_connection_that_is_paused_and_muted_needs_both_to_end() -> None:
    connection, transport = await served()
    connection.pause()
    connection.mute(10)
    transport.receive(add_length(request(1)))
    is_over = asyncio.Event()
    asyncio.get_running_loop().call_later(0.03, is_over.set)
    await is_over.wait()
    assert numbers(transport) == []
    connection.resume()
    assert numbers(transport) == [1]
    connection.abort()


async def test_a_muted_client_is_not_idle() -> None:
    async with listening(echo, idle_timeout_ms=50) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        await peer.exchange(request(0))
        (connection,) = listener.connections
        connection.mute(300)
        peer.write_frame(request(1))
        assert number_of(await peer.read_frame()) == 1
        await peer.close()


async def test_a_half_closed_client_gets_its_answers_after_a_mute() -> None:
    async with listening(echo) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        await peer.exchange(request(0))
        (connection,) = listener.connections
        connection.mute(50)
        peer.write_frame(request(1))
        peer.write_end()
        # bytes that were unread when it was muted are read afterwards
        assert await peer.read_to_end() == b"".join(map(bytes, answer(request(1))))
        await peer.close()


async def test_paused_connection_can_be_closed() -> None:
    parking = Parking()
    connection, transport = await served(parking)
    connection.pause()
    connection.mute(60_000)
    connection.close()
    assert not transport.is_closing()
    parking.release(1000)
    await wait_until_async(transport.is_closing)
    assert not transport.is_aborted


async def test_callbacks_are_notified_when_the_client_stops_and_starts_reading() -> None:
    changes: list[bool] = []
    page = bytes(100_000)

    def handler(connection: Connection, frame: Frame) -> Answer:
        return answer(frame, bytearray(page))

    async with listening(handler, max_unsent_bytes=500_000) as listener, asyncio.timeout(PATIENCE):
        peer = await Peer.connect(listener.port)
        await peer.exchange(request(0))
        (connection,) = listener.connections
        connection.when_stuck(changes.append)
        undo = connection.when_stuck(lambda _: pytest.fail("it was undone"))
        undo()
        peer.write(b"".join(add_length(request(number)) for number in range(1000)))
        await wait_until_async(lambda: changes == [True] and connection.is_stuck)
        for number in range(1000):
            assert number_of(await peer.read_frame()) == number
        await wait_until_async(lambda: not changes[-1])
        # each change is reported once
        assert changes == [bool(number % 2 == 0) for number in range(len(changes))]
        assert not connection.is_stuck
        await peer.close()


async def test_request_that_fails_after_its_client_disconnected_leaves_no_timer() -> None:
    parking = Parking()
    connection, _ = await served(parking, linger_ms=1)
    connection.abort()
    await wait_until_async(lambda: not connection.is_made)
    parking.parked[1000][1].set_exception(ValueError("late"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert connection.flow.watch._timer is None or connection.flow.watch._timer.cancelled()
