"""Filters see the client library that ApiVersions names, at a broker and at the proxy."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from rookery.broker.settings import BrokerSettings
from rookery.proxy.filterapi import ANY, FORWARD, Filter, FilterContext, Verdict, on_request
from rookery.proxy.settings import ProxySettings
from rookery.service.listen.listenersettings import ListenerSecurity
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.servedproxy import ServedProxy
from rookery.wire.codec import request_frame
from rookery.wire.message import Api, Message
from rookery.wire.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from rookery.wire.messages.list_groups import LIST_GROUPS, ListGroupsRequest
from rookery.wire.messages.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from rookery.wire.messages.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest

NodeKind = Literal["mirror", "proxy"]
LOGIN: list[tuple[Api[Any, Any], int, Message]] = [
    (SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN")),
    (SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret")),
]


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("upstream")
    with ServedBroker(folder / "data", BrokerSettings(durability="os")) as broker:
        yield broker.bootstrap


class Libraries(Filter):
    """Keeps the client libraries that it has seen."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, tuple[str, str]] = {}

    @on_request(ANY)
    def look(self, context: FilterContext, request: Message) -> Verdict:
        session = context.session
        self.seen[context.api.name] = session.software_name, session.software_version
        return FORWARD


def send(port: int, *requests: tuple[Api[Any, Any], int, Message]) -> None:
    """Send requests on one connection, each after the response to the one before."""
    with (
        socket.create_connection(("127.0.0.1", port), 20) as client,
        client.makefile("rb") as stream,
    ):
        for api, version, request in requests:
            client.sendall(b"".join(request_frame(api, version, 1, "test", request)))
            assert stream.read(int.from_bytes(stream.read(4), "big"))


def ask_versions(name: str) -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name=name, client_software_version="2.14.0")


@pytest.mark.parametrize("nodes", ["mirror", "proxy"])
def test_library_is_known_from_the_first_request_on(upstream: str, nodes: NodeKind) -> None:
    libraries = Libraries()
    with ServedProxy(upstream, ProxySettings(nodes=nodes), [libraries]) as proxy:
        send(
            proxy.port,
            (API_VERSIONS, 3, ask_versions("librdkafka")),
            (LIST_GROUPS, 4, ListGroupsRequest(states_filter=[])),
        )

    expected = ("librdkafka", "2.14.0")
    assert libraries.seen == {"ApiVersions": expected, "ListGroups": expected}


@pytest.mark.parametrize("nodes", ["mirror", "proxy"])
def test_library_of_a_client_that_logs_in_here_is_known(
    upstream: str, nodes: NodeKind, tmp_path: Path
) -> None:
    users = tmp_path / "users.toml"
    users.touch(mode=0o600)
    users.write_text('[alice]\npassword = "alice-secret"\n')
    libraries = Libraries()
    settings = ProxySettings(
        nodes=nodes, users_file=str(users), security=ListenerSecurity(mechanisms="PLAIN")
    )
    proxy = ServedProxy(upstream, settings, [libraries])
    proxy.settings = replace(proxy.settings, listen=f"sasl_plaintext://{proxy.settings.listen}")
    with proxy:
        send(
            proxy.port,
            (API_VERSIONS, 4, ask_versions("librdkafka")),
            *LOGIN,
            (LIST_GROUPS, 4, ListGroupsRequest(states_filter=[])),
        )

    assert libraries.seen == {"ListGroups": ("librdkafka", "2.14.0")}


@pytest.mark.parametrize(
    ("version", "name"), [(3, "a name with spaces"), (0, "librdkafka")], ids=["invalid", "old"]
)
def test_library_without_a_valid_name_is_not_known(upstream: str, version: int, name: str) -> None:
    libraries = Libraries()
    with ServedProxy(upstream, filters=[libraries]) as proxy:
        send(
            proxy.port,
            (API_VERSIONS, version, ask_versions(name)),
            (LIST_GROUPS, 4, ListGroupsRequest(states_filter=[])),
        )

    assert libraries.seen["ListGroups"] == ("", "")
