"""The life of clients' connections: their stages; answers never shift after a failure."""

from __future__ import annotations

import socket
import struct
import threading
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from rookery.proxy.linkstate import BackendEvent, BackendState, LinkEvent, LinkState
from rookery.proxy.operation.linkdocs import page
from rookery.proxy.settings import ProxySettings, UpstreamSecurity
from rookery.service.listen.listenersettings import ListenerSecurity
from rookery.testing.ports import HOST, free_port
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.codec import request_frame
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from rookery.wire.messages.metadata import METADATA, MetadataRequest
from rookery.wire.messages.produce import PRODUCE, ProduceRequest
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from tests.proxy.listings import cluster_at
from tests.proxy.scripted import exchange, key_of, number_of, proxy_before
from tests.proxy.test_broken_answers import Script, ask_bytes
from tests.proxy.test_upstreams import REQUEST, answer, lists_groups

NodeKind = Literal["mirror", "proxy"]


def listing(number: int) -> bytes:
    """Return a request with a correlation id."""
    request = ListGroupsRequest(states_filter=[])
    return b"".join(request_frame(LIST_GROUPS, 4, number, "test", request))


def answer_all(client: socket.socket, numbers: list[int]) -> None:
    client.sendall(b"".join(map(answer, numbers)))


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stages of all links, and of all connections to brokers, in the order of their events."""
    stages: list[str] = []
    on, on_backend = LinkState.on, BackendState.on

    def note(state: LinkState, event: LinkEvent) -> None:
        before = state.stage
        on(state, event)
        if state.stage is not before:
            stages.append(state.stage.value)

    def note_backend(state: BackendState, event: BackendEvent) -> None:
        before = state.stage
        on_backend(state, event)
        if state.stage is not before:
            stages.append(f"broker {state.stage.value}")

    monkeypatch.setattr(LinkState, "on", note)
    monkeypatch.setattr(BackendState, "on", note_backend)
    return stages


def test_page_is_current(pytestconfig: pytest.Config) -> None:
    path = pytestconfig.rootpath / "docs" / "proxy-connections.md"

    assert path.read_text("utf-8") == page(), "run scripts/docs"


def test_client_that_comes_and_goes(stages: list[str]) -> None:
    with proxy_before(lists_groups(answer_all)) as (proxy, _):
        with socket.create_connection((HOST, proxy.port), 20) as client:
            client.sendall(REQUEST)
            assert client.recv(1024)
        wait_until(lambda: "closed" in stages)

        assert stages == [
            "client active",
            "routing",
            "broker connecting",
            "broker connected",
            "closed",
            "broker closed",
        ]


def test_client_that_asks_for_versions_and_logs_in(stages: list[str], tmp_path: Path) -> None:
    users = tmp_path / "users.toml"
    users.write_text('[alice]\npassword = "alice-secret"\n')
    users.chmod(0o600)
    closed = cluster_at(f"{HOST}:{free_port()}", users_file=str(users))
    closed = replace(
        closed,
        listen=f"sasl_plaintext://{closed.listen}",
        security=ListenerSecurity(mechanisms="PLAIN"),
    )
    with (
        ServedProxy(settings=ProxySettings(clusters={"closed": closed})),
        socket.create_connection(closed.address, 20) as client,
    ):
        chosen = SaslHandshakeRequest(mechanism="PLAIN")
        client.sendall(b"".join(request_frame(SASL_HANDSHAKE, 1, 1, "test", chosen)))
        assert client.recv(1024)

        assert stages == ["client active", "authenticating"]


@pytest.mark.parametrize("nodes", ["mirror", "proxy"])
def test_client_that_has_sent_nothing_is_in_its_first_stage(
    nodes: NodeKind,
) -> None:
    settings = ProxySettings(nodes=nodes)
    with proxy_before(lists_groups(answer_all), settings) as (proxy, _):
        [cluster] = proxy.proxy.clusters
        with socket.create_connection((HOST, proxy.port), 20):
            wait_until(lambda: cluster.links)
            [link] = cluster.links.values()

            assert link.state.stage.value == "startup"
        wait_until(lambda: not cluster.links)
        assert link.state.stage.value == "closed"


def test_connections_of_broker_nodes_have_the_same_stages(stages: list[str]) -> None:
    script = Script()
    with proxy_before(script, ProxySettings(nodes="proxy")) as (proxy, broker):
        script.port = broker.port

        def answer_once(client: socket.socket, request: bytes) -> None:
            del script.special[METADATA.key]
            script(client, request)
            client.shutdown(socket.SHUT_WR)

        script.special[METADATA.key] = answer_once
        with socket.create_connection((HOST, proxy.port), 20) as client:
            client.sendall(ask_bytes(METADATA, 12, MetadataRequest(topics=[])))
            assert client.recv(1024)
            wait_until(lambda: stages[-1] == "broker failed")
            client.sendall(ask_bytes(METADATA, 12, MetadataRequest(topics=[])))
            assert client.recv(1024)
        wait_until(lambda: "broker closed" in stages)

        assert stages == [
            "client active",
            "routing",
            "broker connecting",
            "broker connected",
            "broker failed",
            "broker connecting",
            "broker connected",
            "closed",
            "broker closed",
        ]


def test_broker_that_ends_the_connection(stages: list[str]) -> None:
    def answer_once(client: socket.socket, numbers: list[int]) -> None:
        answer_all(client, numbers)
        client.shutdown(socket.SHUT_WR)

    with proxy_before(lists_groups(answer_once)) as (proxy, broker):
        assert exchange(proxy.port, REQUEST) == answer(7)
        wait_until(lambda: "closed" in stages)

        assert stages[2:] == [
            "broker connecting",
            "broker connected",
            "broker failed",
            "draining",
            "closed",
            "broker closed",
        ]
        wait_until(lambda: broker.is_left)


def test_broker_that_cannot_be_reached(stages: list[str]) -> None:
    with ServedProxy(f"{HOST}:{free_port()}") as proxy:
        assert exchange(proxy.port, REQUEST) == b""
        wait_until(lambda: "closed" in stages)

        assert stages[:5] == [
            "client active",
            "routing",
            "broker connecting",
            "draining",
            "broker failed",
        ]


def test_unknown_api_drains(stages: list[str]) -> None:
    with proxy_before(lists_groups(answer_all)) as (proxy, _):
        assert exchange(proxy.port, struct.pack(">ihhih", 10, 999, 0, 8, -1)) == b""
        wait_until(lambda: "closed" in stages)

        assert stages == ["client active", "draining", "closed", "broker closed"]


def test_negative_and_repeated_correlation_ids_return() -> None:
    numbers = [-1, -(2**31), 2**31 - 1, 0, -1, 5, 5]
    with proxy_before(lists_groups(answer_all)) as (proxy, _):
        requests = b"".join(map(listing, numbers))

        assert exchange_half(proxy.port, requests) == b"".join(map(answer, numbers))


def test_requests_without_a_response_do_not_shift_the_others() -> None:
    seen: list[int] = []

    def behave(client: socket.socket, request: bytes) -> None:
        seen.append(key_of(request))
        if key_of(request) == LIST_GROUPS.key:
            client.sendall(answer(number_of(request)))
        elif key_of(request) != PRODUCE.key:
            raise ConnectionError("not expected")

    silent = ProduceRequest(transactional_id=None, acks=0, timeout_ms=1000, topic_data=[])
    produce = b"".join(request_frame(PRODUCE, 9, 3, "test", silent))
    with proxy_before(behave) as (proxy, _):
        seen.clear()
        requests = produce + listing(1) + produce * 2 + listing(2)
        assert exchange_half(proxy.port, requests) == answer(1) + answer(2)

        assert [each == PRODUCE.key for each in seen] == [True, False, True, True, False]


def test_answer_past_its_deadline_reaches_no_client() -> None:
    release, sent = threading.Event(), threading.Event()

    def answer_late(client: socket.socket, numbers: list[int]) -> None:
        if release.wait(20):
            try:
                answer_all(client, numbers)
            finally:
                sent.set()

    # The second request must be answered in time on a busy host.
    settings = ProxySettings(request_timeout_ms=1_500)
    with proxy_before(lists_groups(answer_late), settings) as (proxy, broker):
        assert exchange(proxy.port, listing(1)) == b""
        release.set()
        assert sent.wait(20)

        assert exchange_half(proxy.port, listing(2)) == answer(2)
        wait_until(lambda: broker.is_left)


def test_broker_that_never_shakes_hands_has_a_deadline() -> None:
    with socket.create_server((HOST, 0)) as silent:
        settings = ProxySettings(
            connect_timeout_ms=200, upstream_security=UpstreamSecurity(tls=True)
        )
        with ServedProxy(f"{HOST}:{silent.getsockname()[1]}", settings) as proxy:
            assert exchange(proxy.port, REQUEST) == b""
            assert "no connection within 200 ms" in proxy.proxy.clusters[0].trouble


def test_broker_that_restarts_serves_the_next_connection() -> None:
    is_up = threading.Event()

    def behave(client: socket.socket, numbers: list[int]) -> None:
        if not is_up.is_set():
            raise ConnectionError("going down")
        answer_all(client, numbers)

    with proxy_before(lists_groups(behave)) as (proxy, broker):
        assert exchange(proxy.port, listing(1) + listing(2)) == b""
        is_up.set()

        assert exchange_half(proxy.port, listing(3)) == answer(3)
        wait_until(lambda: broker.is_left)


def test_client_gone_within_a_request_sends_nothing() -> None:
    seen: list[int] = []

    def note(client: socket.socket, numbers: list[int]) -> None:
        seen.extend(numbers)
        answer_all(client, numbers)

    with proxy_before(lists_groups(note)) as (proxy, broker):
        with socket.create_connection((HOST, proxy.port), 20) as client:
            client.sendall(listing(1) + listing(2)[:-3])
            client.recv(1024)
        wait_until(lambda: not proxy.proxy.clusters[0].links)
        wait_until(lambda: broker.is_left)

        assert len(seen) == 1


def exchange_half(port: int, data: bytes) -> bytes:
    """Send requests and end the input; return everything until the other end closes."""
    with socket.create_connection((HOST, port), 20) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as stream:
            return stream.read()
