"""Brokers that misbehave, and clients that disconnect: both ends are closed in order."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable

import pytest

from rookery.errors import ErrorCode
from rookery.proxy.settings import ProxySettings, UpstreamSecurity
from rookery.testing.ports import free_port
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.codec import read_response, request_frame
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from rookery.wire.messages.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateResponse
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeResponse
from tests.proxy.scripted import (
    Behaviour,
    ScriptedBroker,
    exchange,
    framed,
    key_of,
    number_of,
    proxy_before,
)
from tests.proxy.test_broken_answers import Script, is_served, reply

REQUEST = b"".join(request_frame(LIST_GROUPS, 4, 7, "test", ListGroupsRequest(states_filter=[])))
BODY = b"\0" + struct.pack(">ih", 0, 0) + b"\1\0"


def answer(correlation_id: int) -> bytes:
    return framed(correlation_id, BODY)


Numbered = Callable[[socket.socket, list[int]], None]
"""Answers some requests, given their correlation ids."""


def lists_groups(behave: Numbered) -> Behaviour:
    """Behave so to ListGroups, and end the connection at every other request."""

    def answer_request(client: socket.socket, request: bytes) -> None:
        if key_of(request) != LIST_GROUPS.key:
            raise ConnectionError("not ListGroups")
        behave(client, [number_of(request)])

    return answer_request


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
def test_misbehaving_broker_costs_its_connection(behave: Numbered) -> None:
    with proxy_before(lists_groups(behave)) as (proxy, broker):
        assert exchange(proxy.port, REQUEST) == b""
        wait_until(lambda: broker.is_left)
        assert not proxy.proxy.clusters[0].links


def test_answers_before_the_fault_arrive() -> None:
    with proxy_before(lists_groups(unasked)) as (proxy, _):
        received = exchange(proxy.port, REQUEST)

        assert received == answer(7)


def test_late_answers_do_not_shift() -> None:
    """A broker that answers the second of two requests first breaks the protocol."""
    numbers: list[int] = []

    def swap(client: socket.socket, new: list[int]) -> None:
        numbers.extend(new)
        if len(numbers) == 2:
            client.sendall(b"".join(answer(number) for number in reversed(numbers)))

    with proxy_before(lists_groups(swap)) as (proxy, _):
        assert exchange(proxy.port, REQUEST + REQUEST) == b""


def test_client_gone_mid_request_closes_the_broker_connection() -> None:
    received = threading.Event()

    def keep_silent(client: socket.socket, numbers: list[int]) -> None:
        received.set()

    with proxy_before(lists_groups(keep_silent)) as (proxy, broker):
        with socket.create_connection(("127.0.0.1", proxy.port), 20) as client:
            client.sendall(REQUEST)
            assert received.wait(20)
            # A reset: a mere end of input could be a client that still reads.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_until(lambda: broker.is_left)
        wait_until(lambda: not proxy.proxy.clusters[0].links)


def test_half_closed_client_gets_its_answers() -> None:
    def behave(client: socket.socket, numbers: list[int]) -> None:
        client.sendall(b"".join(map(answer, numbers)))

    with (
        proxy_before(lists_groups(behave)) as (proxy, _),
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
    with proxy_before(lists_groups(behave)) as (proxy, _):
        assert exchange(proxy.port, REQUEST + unknown) == answer(7)


def test_unreachable_broker_closes_the_connection() -> None:
    with ServedProxy(f"127.0.0.1:{free_port()}") as proxy:
        assert exchange(proxy.port, REQUEST) == b""
        assert "cannot connect" in proxy.proxy.clusters[0].trouble


class LoginBroker(Script):
    """Accepts every login, or is silent."""

    def __init__(self, *, is_silent: bool) -> None:
        super().__init__()
        self.is_silent = is_silent
        self.special[SASL_HANDSHAKE.key] = self._choose
        self.special[SASL_AUTHENTICATE.key] = self._accept

    def __call__(self, client: socket.socket, request: bytes) -> None:
        if not self.is_silent:
            super().__call__(client, request)

    def _choose(self, client: socket.socket, request: bytes) -> None:
        answer = SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=["PLAIN"])
        client.sendall(reply(request, answer))

    def _accept(self, client: socket.socket, request: bytes) -> None:
        answer = SaslAuthenticateResponse(error_code=ErrorCode.NONE, auth_bytes=b"")
        client.sendall(reply(request, answer))


def test_silent_server_delays_one_client_until_it_responds_again() -> None:
    scripts = [LoginBroker(is_silent=True), LoginBroker(is_silent=False)]
    silent, sound = brokers = [ScriptedBroker(script) for script in scripts]
    for script in scripts:
        script.port = sound.port
    login = UpstreamSecurity(mechanism="PLAIN", username="a", password="b")  # noqa: S106
    settings = ProxySettings(connect_timeout_ms=200, upstream_security=login)
    bootstrap = ",".join(broker.bootstrap for broker in brokers)
    try:
        with ServedProxy(bootstrap, settings) as proxy:
            assert [is_served(proxy.port) for _ in range(4)] == [True] * 4
            assert silent.accepted == 1
            scripts[0].is_silent = False
            [cluster] = proxy.proxy.clusters
            proxy.do(cluster.brokers.probe())
            assert [is_served(proxy.port) for _ in range(2)] == [True] * 2

            assert silent.accepted == 3
    finally:
        for broker in brokers:
            broker.close()
