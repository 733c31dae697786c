"""Requests that are relayed elsewhere enter the queues before anything else happens."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rookery.clock import loop_seconds
from rookery.errors import Unavailable
from rookery.net.callqueue import CallQueue, RelayedCall
from rookery.net.connection import Connection
from rookery.net.outbox import Answer, Budget
from rookery.net.settings import ConnectionSettings
from rookery.testing.wire import MemoryTransport, add_length
from rookery.wire.frame import Frame
from tests.net.serving import request


class Elsewhere:
    """One request that is in no queue."""

    def __init__(self, add: Callable[[RelayedCall], None]) -> None:
        self.in_flight = 1
        self.last_seen = loop_seconds()
        self.has_part = False
        self.call = RelayedCall(0, 77, None, is_answered=True)
        self.call.deadline = 5.0
        self._add = add

    def spill(self) -> None:
        if self.in_flight:
            self.in_flight = 0
            self._add(self.call)


def calls_with_another() -> tuple[CallQueue, Elsewhere]:
    calls = CallQueue()
    path = Elsewhere(calls.sent.append)
    calls.direct = path
    return calls, path


async def test_new_call_follows_those_elsewhere() -> None:
    calls, path = calls_with_another()
    assert calls.in_flight == 1

    calls.number()

    assert list(calls.sent) == [path.call]
    assert calls.in_flight == 1


async def test_calls_elsewhere_have_their_deadlines() -> None:
    calls, path = calls_with_another()

    assert calls.expire(4.0, "broker") == 5.0
    assert not path.call.is_done
    calls.expire(5.0, "broker")

    assert isinstance(path.call.error, Unavailable)


async def test_calls_elsewhere_fail_with_the_connection() -> None:
    calls, path = calls_with_another()

    calls.fail("lost")

    assert isinstance(path.call.error, Unavailable)


def answer(_: Connection, frame: Frame) -> Answer:
    return [add_length(bytes(frame[4:8]))]


def connection_with_another() -> tuple[Connection, MemoryTransport, Elsewhere]:
    connection = Connection(answer, ConnectionSettings(), Budget())
    transport = MemoryTransport(connection)
    transport.receive(add_length(request(1)))
    path = Elsewhere(connection.flow.queue.adopt)
    connection.flow.queue.direct = path
    return connection, transport, path


async def test_client_with_a_request_elsewhere_is_not_idle() -> None:
    connection, _, path = connection_with_another()

    assert connection.flow._present_wait() is None
    path.in_flight = 0
    wait = connection.flow._present_wait()
    assert wait is not None
    assert wait.reason == "it sent no request"
    path.has_part = True
    wait = connection.flow._present_wait()
    assert wait is not None
    assert wait.reason == "a request did not arrive completely"


@pytest.mark.parametrize("end", ["close", "eof_received"])
async def test_connection_that_closes_waits_for_requests_elsewhere(end: str) -> None:
    connection, transport, path = connection_with_another()

    getattr(connection, end)()

    assert not transport.is_closing()
    assert connection.in_flight == 1
    path.call.take(Frame(memoryview(bytearray(b"\0\0\0\0done"))))
    connection.flow.advance()
    assert transport.is_closing()
    assert bytes(transport.frames()[-1]) == (77).to_bytes(4, "big") + b"done"


async def test_lost_client_keeps_no_request_elsewhere() -> None:
    connection, transport, path = connection_with_another()

    connection.connection_lost(None)

    assert path.call.is_abandoned
    assert connection.in_flight == 0
    transport.abort()
