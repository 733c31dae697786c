"""Brokers that misbehave, and clients that go away: both ends are closed, and no answer shifts."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from rookery.testing.ports import free_port
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.codec import read_response, request_frame
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest

REQUEST = b"".join(request_frame(LIST_GROUPS, 4, 7, "test", ListGroupsRequest(states_filter=[])))
BODY = b"\0" + struct.pack(">ih", 0, 0) + b"\1\0"


def answer(correlation_id: int) -> bytes:
    return struct.pack(">ii", 4 + len(BODY), correlation_id) + BODY


Behaviour = Callable[[socket.socket, list[int]], None]
"""Answers some requests, given their correlation ids."""


class ScriptedBroker:
    """Reads whole requests, and behaves as it is told; refuses to tell its brokers."""

    def __init__(self, behave: Behaviour) -> None:
        self.port = free_port()
        self.accepted = 0
        self.ended = 0
        self._behave = behave
        self._server = socket.create_server(("127.0.0.1", self.port))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join(20)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self.accepted += 1
            thread = threading.Thread(target=self._serve, args=(client,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, client.makefile("rb") as stream:
            try:
                while head := stream.read(4):
                    request = stream.read(int.from_bytes(head, "big"))
                    key, _, number = struct.unpack_from(">hhi", request)
                    if key != LIST_GROUPS.key:
                        return
                    self._behave(client, [number])
            except OSError:
                pass
            finally:
                self.ended += 1


@contextmanager
def proxy_before(behave: Behaviour) -> Iterator[tuple[ServedProxy, ScriptedBroker]]:
    broker = ScriptedBroker(behave)
    try:
        with ServedProxy(f"127.0.0.1:{broker.port}") as proxy:
            yield proxy, broker
    finally:
        broker.close()


def exchange(proxy: ServedProxy, data: bytes) -> bytes:
    """Send bytes to the proxy; return everything until it closes the connection."""
    with socket.create_connection(("127.0.0.1", proxy.port), 20) as client:
        client.sendall(data)
        with client.makefile("rb") as stream:
            return stream.read()


def wrong_number(client: socket.socket, numbers: list[int]) -> None:
    client.sendall(b"".join(answer(number + 1) for number in numbers))


def cut_short(client: socket.socket, numbers: list[int]) -> None:
    client.sendall(answer(numbers[0])[:-3])
    client.shutdown(socket.SHUT_RDWR)


def huge_length(client: socket.socket, numbers: list[int]) -> None:
    client.sendall(struct.pack(">ii", 2**31 - 1, numbers[0]))


def negative_length(client: socket.socket, numbers: list[int]) -> None:
    client.sendall(struct.pack(">ii", -1, numbers[0]))


def unasked(client: socket.socket, numbers: list[int]) -> None:
    client.sendall(answer(numbers[0]) + answer(numbers[0] + 1))


@pytest.mark.parametrize("behave", [wrong_number, cut_short, huge_length, negative_length])
def test_misbehaving_broker_costs_its_connection(behave: Behaviour) -> None:
    with proxy_before(behave) as (proxy, broker):
        assert exchange(proxy, REQUEST) == b""
        wait_until(lambda: broker.ended == broker.accepted)
        assert not proxy.proxy.clusters[0].links


def test_answers_before_the_fault_arrive() -> None:
    with proxy_before(unasked) as (proxy, _):
        received = exchange(proxy, REQUEST)

        assert received == answer(7)


def test_late_answers_do_not_shift() -> None:
    """A broker that answers the second of two requests first breaks the protocol."""
    numbers: list[int] = []

    def swap(client: socket.socket, new: list[int]) -> None:
        numbers.extend(new)
        if len(numbers) == 2:
            client.sendall(b"".join(answer(number) for number in reversed(numbers)))

    with proxy_before(swap) as (proxy, _):
        assert exchange(proxy, REQUEST + REQUEST) == b""


def test_client_gone_mid_request_closes_the_broker_connection() -> None:
    received = threading.Event()

    def keep_silent(client: socket.socket, numbers: list[int]) -> None:
        received.set()

    with proxy_before(keep_silent) as (proxy, broker):
        with socket.create_connection(("127.0.0.1", proxy.port), 20) as client:
            client.sendall(REQUEST)
            assert received.wait(20)
            # A reset: a mere end of input could be a client that still reads.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_until(lambda: broker.ended == broker.accepted)
        wait_until(lambda: not proxy.proxy.clusters[0].links)


def test_half_closed_client_gets_its_answers() -> None:
    def behave(client: socket.socket, numbers: list[int]) -> None:
        client.sendall(b"".join(map(answer, numbers)))

    with (
        proxy_before(behave) as (proxy, _),
        socket.create_connection(("127.0.0.1", proxy.port), 20) as client,
        client.makefile("rb") as stream,
    ):
        client.sendall(REQUEST * 3)
        client.shutdown(socket.SHUT_WR)

        assert stream.read() == answer(7) * 3
        assert read_response(LIST_GROUPS, 4, answer(7)[4:]).groups == []


def test_unknown_api_closes_after_earlier_answers() -> None:
    def behave(client: socket.socket, numbers: list[int]) -> None:
        client.sendall(b"".join(map(answer, numbers)))

    unknown = struct.pack(">ihhih", 10, 999, 0, 8, -1)
    with proxy_before(behave) as (proxy, _):
        assert exchange(proxy, REQUEST + unknown) == answer(7)


def test_unreachable_broker_closes_the_connection() -> None:
    with ServedProxy(f"127.0.0.1:{free_port()}") as proxy:
        assert exchange(proxy, REQUEST) == b""
        assert "cannot connect" in proxy.proxy.clusters[0].trouble
