"""How connections share one turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable

from rookery.net.connection import Connection
from rookery.net.outbox import Answer, Budget, TurnBudget
from rookery.net.settings import ConnectionSettings
from rookery.testing.wait import wait_until_async
from rookery.testing.wire import MemoryTransport, add_length
from rookery.wire.frame import Frame
from tests.net.serving import answer, request

TURN, SHARE, PIECE = 64, 8, 64 * 1024


class Turns:
    """Counts the turns of the event loop, and what was started in each."""

    def __init__(self) -> None:
        self.number = 0
        self.started: Counter[int] = Counter()
        self.of: Counter[Connection] = Counter()
        self.handle = asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self.number += 1
        self.handle = asyncio.get_running_loop().call_soon(self._next)

    def __call__(self, connection: Connection, frame: Frame) -> Answer:
        self.started[self.number] += 1
        self.of[connection] += 1
        return answer(frame)

    def total(self) -> int:
        return sum(self.started.values())


def busy(budget: Budget, turns: Turns, count: int, requests: list[bytes]) -> list[MemoryTransport]:
    """Return connections whose clients have sent many requests at once."""
    transports = [idle(budget, turns) for _ in range(count)]
    for transport in transports:
        transport.receive(b"".join(map(add_length, requests)))
    return transports


def idle(budget: Budget, turns: Turns) -> MemoryTransport:
    return MemoryTransport(Connection(turns, ConnectionSettings(), budget))


async def send(transport: MemoryTransport, requests: list[bytes]) -> None:
    """Send requests, as far as the connection reads."""
    for frame in requests:
        data = add_length(frame)
        for start in range(0, len(data), PIECE):
            await wait_until_async(transport.is_reading)
            transport.receive(data[start : start + PIECE])


async def test_a_turn_takes_no_longer_with_more_busy_clients() -> None:
    turns, budget = Turns(), Budget()
    requests = [request(number) for number in range(300)]
    transports = busy(budget, turns, 30, requests)
    await wait_until_async(lambda: turns.total() == 30 * 300)
    turns.handle.cancel()

    # The rest of one turn may be used between it and the next.
    assert max(turns.started.values()) <= 2 * TURN
    for transport in transports:
        assert [int.from_bytes(frame[:4], "big") for frame in transport.frames()] == [*range(300)]
        transport.abort()


async def test_busy_clients_get_equal_shares() -> None:
    turns, budget = Turns(), Budget()
    transports = busy(budget, turns, 20, [request(number) for number in range(200)])
    await wait_until_async(lambda: turns.total() >= 20 * 100)
    turns.handle.cancel()

    # The first ones had a turn before the others came.
    assert max(turns.of.values()) - min(turns.of.values()) <= TURN + SHARE
    for transport in transports:
        transport.abort()


async def test_request_of_many_turns_waits_for_a_bounded_number_of_others() -> None:
    turns, budget, needed = Turns(), Budget(), 8
    totals: list[int] = []

    async def slow() -> Answer:
        for _ in range(needed):
            await asyncio.sleep(0)
        totals.append(turns.total())
        return None

    def handler(_: Connection, __: Frame) -> Awaitable[Answer]:
        return slow()

    transports = busy(budget, turns, 20, [request(number) for number in range(1000)])
    good = MemoryTransport(Connection(handler, ConnectionSettings(), budget))
    before = turns.total()
    good.receive(add_length(request(1)))
    await wait_until_async(lambda: totals)
    turns.handle.cancel()

    assert totals[0] - before <= 20 * SHARE + (needed + 3) * TURN
    for transport in (*transports, good):
        transport.abort()


async def test_large_requests_count_more() -> None:
    turns, budget = Turns(), Budget()
    requests = [request(number, bytes(15 * PIECE)) for number in range(9)]
    transports = [idle(budget, turns) for _ in range(4)]
    await asyncio.gather(*(send(transport, requests) for transport in transports))
    await wait_until_async(lambda: turns.total() == 4 * 9)
    turns.handle.cancel()

    assert max(turns.started.values()) <= 2 * TURN // 16
    for transport in transports:
        transport.abort()


async def test_request_larger_than_a_turn_is_started() -> None:
    turns, budget = Turns(), Budget()
    transport = idle(budget, turns)
    await send(transport, [request(number, bytes(5_000_000)) for number in range(3)])
    await wait_until_async(lambda: turns.total() == 3)
    turns.handle.cancel()
    transport.abort()


async def test_client_that_disconnects_while_it_waits_is_forgotten() -> None:
    turns, budget = Turns(), Budget()
    requests = b"".join(add_length(request(number)) for number in range(100))
    transports = [idle(budget, turns) for _ in range(3)]
    lost = Connection(turns, ConnectionSettings(), budget)
    transports.append(MemoryTransport(lost))
    for transport in transports:
        transport.receive(requests)
    lost.connection_lost(None)
    await wait_until_async(lambda: turns.total() == 300)
    turns.handle.cancel()

    # The first used up the turn before the others came.
    assert lost not in turns.of
    for transport in transports[:-1]:
        transport.abort()


async def test_waiting_connection_that_is_muted_does_not_stop_the_others() -> None:
    turns, budget = Turns(), Budget()
    paused = Connection(turns, ConnectionSettings(), budget)
    transports = [*busy(budget, turns, 2, [*map(request, range(100))]), MemoryTransport(paused)]
    transports[-1].receive(b"".join(add_length(request(number)) for number in range(100)))
    paused.pause()
    await wait_until_async(lambda: turns.total() == 200)
    assert paused not in turns.of
    paused.resume()
    await wait_until_async(lambda: turns.total() == 300)
    turns.handle.cancel()
    for transport in transports:
        transport.abort()


async def test_waiters_are_called_in_order_until_the_turn_is_used_up() -> None:
    budget, called = TurnBudget(), list[str]()

    def use(name: str, units: int) -> None:
        called.append(name)
        assert budget.grant() > 0
        budget.spend(units)

    budget.spend(TURN)
    for name, units in (("a", TURN - 1), ("b", 5), ("c", 1)):
        budget.wait(lambda name=name, units=units: use(name, units))  # type: ignore[misc]  # mypy cannot infer defaults
    assert budget.grant() == 0
    await asyncio.sleep(0)
    assert called == ["a", "b"]
    await asyncio.sleep(0)
    assert called == ["a", "b", "c"]
    assert budget.grant() == TURN - 1
