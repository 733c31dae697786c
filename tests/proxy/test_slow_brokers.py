"""A broker that does not read delays only the clients that need it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rookery.model.address import Address
from rookery.proxy.clientgate import ClientGate, GateReason
from rookery.proxy.settings import ProxySettings
from rookery.testing.ports import HOST
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.codec import request_frame
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from rookery.wire.messages.metadata import METADATA, MetadataRequest
from tests.proxy.scripted import ScriptedBroker, number_of
from tests.proxy.test_broken_answers import Script, ask_bytes, is_served
from tests.proxy.test_upstreams import answer

COUNT = 64
FILLER = "x" * 1_000_000


def listing(number: int) -> bytes:
    """Return a request of a megabyte."""
    request = ListGroupsRequest(states_filter=[FILLER])
    return b"".join(request_frame(LIST_GROUPS, 4, number, "test", request))


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each client was held because of a broker that does not read, in order."""
    told: list[bool] = []
    act = ClientGate.set

    def note(gate: ClientGate, reason: GateReason, *, is_closed: bool) -> None:
        if reason is GateReason.FULL:
            told.append(is_closed)
        act(gate, reason, is_closed=is_closed)

    monkeypatch.setattr(ClientGate, "set", note)
    return told


class StalledBroker(Script):
    """Answers ListGroups only when it may; until then it reads nothing more."""

    def __init__(self) -> None:
        super().__init__(special={LIST_GROUPS.key: self._answer})
        self.is_reading = threading.Event()

    def _answer(self, client: socket.socket, request: bytes) -> None:
        assert self.is_reading.wait(60)
        client.sendall(answer(number_of(request)))


@contextmanager
def proxy_before_each(*scripts: Script) -> Iterator[dict[int, Address]]:
    """Run a proxy before some brokers; return its address of each."""
    brokers = [ScriptedBroker(script) for script in scripts]
    for script in scripts:
        script.brokers = [(node, HOST, broker.port) for node, broker in enumerate(brokers)]
    try:
        settings = ProxySettings(refresh_interval_ms=3_600_000)
        with ServedProxy(brokers[0].bootstrap, settings) as proxy:
            yield proxy.proxy.clusters[0].nodes
    finally:
        for broker in brokers:
            broker.close()


def test_broker_that_does_not_read_holds_up_only_its_own_clients(full: list[bool]) -> None:
    stalled = StalledBroker()
    requests, answers = (b"".join(map(make, range(COUNT))) for make in (listing, answer))
    with (
        proxy_before_each(Script(), stalled) as nodes,
        socket.create_connection(nodes[1], 60) as slow,
        slow.makefile("rb") as stream,
    ):
        writer = threading.Thread(target=slow.sendall, args=(requests,))
        writer.start()
        try:
            wait_until(lambda: full, "a client that is held")

            assert is_served(nodes[0].port)
            # Another client of that broker waits for its own requests only.
            with socket.create_connection(nodes[1], 20) as other:
                other.sendall(ask_bytes(METADATA, 12, MetadataRequest(topics=[])))
                assert other.recv(4)
            assert writer.is_alive()
            assert full == [True]
        finally:
            stalled.is_reading.set()
            received = stream.read(len(answers))
            writer.join(60)

        assert received == answers
        assert full[-1] is False
