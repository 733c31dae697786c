"""Large responses wait for room, and take it one at a time."""

from __future__ import annotations

import struct

import pytest

from rookery.net.answers import AnswerBudget
from rookery.net.connection import Connection
from rookery.net.outbox import Answer, Budget
from rookery.net.settings import ConnectionSettings, UpstreamSettings
from rookery.net.upstream import Upstream
from rookery.proxy.answerroom import AnswerRoom, HeldResults, PartRoom
from rookery.testing.wait import wait_until_async
from rookery.testing.wire import MemoryTransport
from rookery.wire.frame import Frame

LIMIT = 8 << 20
SIZE = 64 << 20


def refuse(connection: Connection, frame: Frame) -> Answer:
    pytest.fail("no client sends a request")


def connect(answers: AnswerBudget) -> tuple[Connection, MemoryTransport]:
    connection = Connection(refuse, ConnectionSettings(), Budget(), answers=answers)
    return connection, MemoryTransport(connection)


def receive_large(connection: Connection) -> tuple[AnswerRoom, MemoryTransport]:
    """Let the start of a large response arrive for a client."""
    upstream = Upstream("memory", 0, UpstreamSettings())
    broker = MemoryTransport(upstream)
    room = AnswerRoom(connection, upstream)
    broker.receive(struct.pack(">ii", SIZE, 0))
    return room, broker


async def test_response_that_fits_is_counted_and_read() -> None:
    connection, _ = connect(AnswerBudget(LIMIT))

    _, broker = receive_large(connection)

    assert broker.is_reading()
    assert connection.held_bytes == SIZE


async def test_responses_wait_and_are_admitted_one_at_a_time() -> None:
    answers = AnswerBudget(LIMIT)
    holder, transport = connect(answers)
    holder.promise(LIMIT * 2)
    clients = [connect(answers) for _ in range(3)]
    rows = [receive_large(connection) for connection, _ in clients]
    assert [broker.is_reading() for _, broker in rows] == [False] * 3

    for count in (1, 2, 3):
        # The holder of the room goes, and makes room for one.
        transport.abort()
        await wait_until_async(lambda: any(broker.is_reading() for _, broker in rows))
        [index] = [index for index, (_, broker) in enumerate(rows) if broker.is_reading()]
        assert sum(connection.held_bytes for connection, _ in clients) == SIZE, count
        transport = clients.pop(index)[1]
        rows.pop(index)
    transport.abort()


async def test_client_that_reads_again_still_waits_for_room() -> None:
    answers = AnswerBudget(LIMIT)
    holder, transport = connect(answers)
    holder.promise(LIMIT * 2)
    connection, client = connect(answers)
    _, broker = receive_large(connection)

    connection.pause_writing()
    connection.resume_writing()

    assert not broker.is_reading()
    transport.abort()
    await wait_until_async(broker.is_reading)
    client.abort()


class HeldSource:
    """A connection to a broker."""

    def __init__(self) -> None:
        self.is_held = self.is_over = False

    def hold(self, *, is_held: bool) -> None:
        self.is_held = is_held


async def test_parts_wait_until_there_is_room_and_are_admitted_together() -> None:
    answers = AnswerBudget(LIMIT)
    holder, transport = connect(answers)
    holder.promise(LIMIT * 2)
    client, _ = connect(answers)
    room, sources = PartRoom(client), [HeldSource(), HeldSource()]

    for source in sources:
        room.receive(source, SIZE)
    assert [source.is_held for source in sources] == [True, True]
    transport.abort()

    await wait_until_async(lambda: not any(source.is_held for source in sources))
    assert client.held_bytes == 2 * SIZE


async def test_part_of_a_response_that_has_begun_does_not_wait() -> None:
    answers = AnswerBudget(LIMIT)
    client, _ = connect(answers)
    room, source = PartRoom(client), HeldSource()
    room.receive(source, LIMIT * 2)

    room.receive(source, SIZE)

    assert not source.is_held
    assert client.held_bytes == LIMIT * 2 + SIZE


async def test_client_that_has_gone_waits_for_no_room() -> None:
    answers = AnswerBudget(LIMIT)
    holder, transport = connect(answers)
    holder.promise(LIMIT * 2)
    client, gone = connect(answers)
    room, source = PartRoom(client), HeldSource()
    room.receive(source, SIZE)

    gone.abort()
    transport.abort()

    await wait_until_async(lambda: not answers.is_full)
    assert client.held_bytes == 0


def held_results(answers: AnswerBudget, limit_ms: int) -> tuple[HeldResults, list[str]]:
    dropped: list[str] = []
    client, _ = connect(answers)
    return HeldResults(client, lambda: dropped.append("all"), limit_ms), dropped


async def test_results_for_a_later_request_are_counted_until_they_are_taken() -> None:
    answers = AnswerBudget(LIMIT)
    held, dropped = held_results(answers, 60_000)

    held.update(LIMIT)
    assert (answers.used, answers.is_full) == (LIMIT, False)
    held.update(0)
    answers.add(LIMIT)

    # Another count finds nothing.
    assert answers.room() == LIMIT // 4
    assert dropped == []


async def test_results_for_a_later_request_are_dropped_after_a_time() -> None:
    held, dropped = held_results(AnswerBudget(LIMIT), 1)

    held.update(100)

    await wait_until_async(lambda: dropped)
    assert held.held_bytes == 0


async def test_results_for_a_later_request_are_dropped_while_memory_is_full() -> None:
    held, dropped = held_results(AnswerBudget(LIMIT), 60_000)

    held.update(LIMIT * 2)

    assert dropped == ["all"]
    assert held.held_bytes == 0
