"""No host of the upstream reaches a client, in any version of any response that can name one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import cycle
from random import Random
from typing import Any

import pytest

from rookery.model.address import Address
from rookery.testing.messages import random_message
from rookery.testing.ports import HOST
from rookery.wire.codec import read_response
from rookery.wire.endpoints import endpoint_fields
from rookery.wire.message import Api, Host, Message, kind_of
from rookery.wire.messages.describe_quorum import DESCRIBE_QUORUM
from rookery.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from rookery.wire.table import shape_of
from tests.proxy.test_broken_answers import (
    CHANGED,
    PASSAGES,
    Script,
    ask_bytes,
    reply,
    scripted_proxy,
    some_request,
)

# Nothing listens there: a proxy that connects to a broker of these responses is refused at once.
UPSTREAM = "127.0.0.9"
NODES = (0, 1, 7, -1)
SEEDS = 20
# In version 0 of Metadata, no topics are all topics.
_FIRST_WITH_NULL = 1
_FIRST_WITH_KEYS = 4
CASES = [
    pytest.param(api, version, id=f"{api.name} {version}")
    for api in CHANGED
    for version in PASSAGES.versions(api.key)
    if (passage := PASSAGES.find((api.key, version))) and passage.has_addresses
]


def structures_of(message: Message) -> Iterator[Message]:
    """Return a message and all that are in it."""
    yield message
    for name in message.__fields__:
        value = getattr(message, name)
        for inner in value if isinstance(value, list) else [value]:
            if isinstance(inner, Message):
                yield from structures_of(inner)


def name_upstream(response: Message, version: int, nodes: Iterator[int]) -> None:
    """Set all addresses of a response to one of the upstream, for given brokers."""
    for each in structures_of(response):
        fields = endpoint_fields(type(each))
        values: dict[str, Any] = {
            name: UPSTREAM
            for name, entry in each.__fields__.items()
            if shape_of(type(each), entry).mark == kind_of(Host)
        }
        if fields is not None:
            values |= {fields.node: next(nodes), fields.port: 1}
        for name, value in values.items():
            if each.__fields__[name].is_in(version):
                setattr(each, name, value)


def request_for(api: Api[Any, Any], version: int, response: Any) -> bytes:
    """Return a request to which a response has nothing that was not asked for."""
    if api is METADATA:
        topics: list[MetadataRequestTopic] | None = None if version >= _FIRST_WITH_NULL else []
        return ask_bytes(api, version, MetadataRequest(topics=topics))
    if api is FIND_COORDINATOR:
        keys = [each.key for each in response.coordinators]
        is_batched = version >= _FIRST_WITH_KEYS
        request = FindCoordinatorRequest(coordinator_keys=keys if is_batched else [])
        return ask_bytes(api, version, request)
    return some_request(api, version)


@pytest.mark.parametrize(("api", "version"), CASES)
def test_clients_see_no_host_of_the_upstream(api: Api[Any, Any], version: int) -> None:
    random, nodes = Random(f"{api.name} {version}"), cycle(NODES)
    script = Script()
    seen = 0
    with scripted_proxy(script) as (proxy, _):
        for _ in range(SEEDS):
            response = random_message(api.response, version, random)
            name_upstream(response, version, nodes)

            def answer(client: socket.socket, request: bytes, response: Message = response) -> None:
                client.sendall(reply(request, response))

            script.special[api.key] = answer
            with (
                socket.create_connection((HOST, proxy.port), 20) as client,
                client.makefile("rb") as stream,
            ):
                client.sendall(request_for(api, version, response))
                received = stream.read(int.from_bytes(stream.read(4), "big"))
            del script.special[api.key]

            assert received
            assert UPSTREAM.encode() not in received
            [cluster] = proxy.proxy.clusters
            for each in structures_of(read_response(api, version, received)):
                fields = endpoint_fields(type(each))
                if fields is not None and each.__fields__[fields.host].is_in(version):
                    address = Address(getattr(each, fields.host), getattr(each, fields.port))
                    node = getattr(each, fields.node)
                    assert address == cluster.nodes.get(node, Address("", -1))
                    seen += bool(address.host)
    assert seen or api is DESCRIBE_QUORUM
