"""Requests of a client wait as long as any reason holds."""

from __future__ import annotations

import pytest

from rookery.net.answers import AnswerBudget
from rookery.net.connection import Connection
from rookery.net.outbox import Answer, Budget
from rookery.net.settings import ConnectionSettings
from rookery.proxy.clientgate import ClientGate, GateReason
from rookery.testing.wire import MemoryTransport
from rookery.wire.frame import Frame


def refuse(connection: Connection, frame: Frame) -> Answer:
    pytest.fail("no client sends a request")


@pytest.fixture
async def connection() -> Connection:
    return Connection(refuse, ConnectionSettings(), Budget(), answers=AnswerBudget())


@pytest.fixture
async def client(connection: Connection) -> MemoryTransport:
    return MemoryTransport(connection)


@pytest.fixture
async def gate(connection: Connection) -> ClientGate:
    return ClientGate(connection)


async def test_requests_wait_for_the_last_reason(gate: ClientGate, client: MemoryTransport) -> None:
    gate.close(GateReason.CONNECTING)
    gate.set(GateReason.FULL, is_closed=True)
    gate.open(GateReason.CONNECTING)
    assert not client.is_reading()

    gate.set(GateReason.FULL, is_closed=False)
    assert client.is_reading()


async def test_requests_wait_for_the_last_lookup(gate: ClientGate, client: MemoryTransport) -> None:
    gate.begin_lookup()
    gate.begin_lookup()
    gate.end_lookup()
    assert not client.is_reading()

    gate.end_lookup()
    assert client.is_reading()
