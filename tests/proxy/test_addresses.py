"""No address of the upstream reaches a client."""

from __future__ import annotations

from typing import Any

import pytest

from rookery.errors import ErrorCode
from rookery.model.address import Address
from rookery.proxy.addresses import read_addresses, replace_addresses, replace_hints
from rookery.proxy.passage import Passage, mirror_passages
from rookery.wire.catalog import kafka_apis
from rookery.wire.endpoints import endpoint_fields
from rookery.wire.message import Api, Host, kind_of
from rookery.wire.messages.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumResponse,
    Listener,
    Node,
)
from rookery.wire.messages.fetch import FetchResponse, NodeEndpoint
from rookery.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from rookery.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from rookery.wire.table import shape_of, structures

PROXY = {1: Address("proxy", 9093), 2: Address("proxy", 9094)}
PASSAGES = mirror_passages()
PASSING = [api for api in kafka_apis().values() if PASSAGES.versions(api.key)]


def hosts_without_rule(api: Api[Any, Any]) -> list[str]:
    return [
        f"{each.__name__}.{name}"
        for each in structures(api.response)
        if endpoint_fields(each) is None
        for name, entry in each.__fields__.items()
        if shape_of(each, entry).mark == kind_of(Host)
    ]


def table_passage(api: Api[Any, Any], version: int) -> Passage:
    passage = PASSAGES.find((api.key, version))
    assert passage is not None
    return passage


@pytest.mark.parametrize("api", PASSING, ids=lambda api: api.name)
def test_every_host_of_a_response_has_a_rule(api: Api[Any, Any]) -> None:
    covered = ["Listener.host"] if api is DESCRIBE_QUORUM else []

    assert hosts_without_rule(api) == covered
    # The rule is of no use if such responses pass without a look.
    passages = [table_passage(api, version) for version in PASSAGES.versions(api.key)]
    has_host = any(
        shape_of(each, entry).mark == kind_of(Host) and entry.is_in(api.versions[-1])
        for each in structures(api.response)
        for entry in each.__fields__.values()
    )
    assert any(passage.has_addresses for passage in passages) is has_host


def test_addresses_are_read_and_replaced() -> None:
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=1, host="kafka-1", port=9092),
            MetadataResponseBroker(node_id=2, host="kafka-2", port=9092),
        ],
        topics=[],
    )

    assert read_addresses(response) == {1: Address("kafka-1", 9092), 2: Address("kafka-2", 9092)}
    replace_addresses(response, PROXY.get)
    assert read_addresses(response) == PROXY


def test_brokers_without_an_address_are_left_out() -> None:
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node, host=f"kafka-{node}", port=9092) for node in (2, 7)
        ],
        topics=[],
    )

    replace_addresses(response, PROXY.get)

    assert read_addresses(response) == {2: PROXY[2]}


@pytest.mark.parametrize("is_batched", [False, True])
def test_coordinator_without_an_address_is_not_available(is_batched: bool) -> None:
    fields: Any = {"node_id": 7, "host": "kafka-7", "port": 9092, "error_code": ErrorCode.NONE}
    response = (
        FindCoordinatorResponse(coordinators=[Coordinator(key="group", **fields)])
        if is_batched
        else FindCoordinatorResponse(**fields)
    )

    replace_addresses(response, PROXY.get)

    coordinators: list[Any] = [*response.coordinators] or [response]
    [coordinator] = coordinators
    assert (coordinator.host, coordinator.port) == ("", -1)
    assert coordinator.error_code is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_listeners_of_controllers_are_hidden() -> None:
    listener = Listener(name="CONTROLLER", host="controller", port=9093)
    response = DescribeQuorumResponse(
        error_code=ErrorCode.NONE, topics=[], nodes=[Node(node_id=1, listeners=[listener])]
    )

    replace_addresses(response, PROXY.get)

    assert response.nodes[0].listeners == []


def test_hints_of_unknown_brokers_are_left_out() -> None:
    hints = [
        NodeEndpoint(node_id=node, host=f"kafka-{node}", port=9092, rack=None) for node in (2, 7)
    ]
    response = FetchResponse(responses=[], node_endpoints=hints)

    assert replace_hints(response, PROXY.get)
    assert read_addresses(response) == {2: PROXY[2]}


def test_response_without_hints_is_unchanged() -> None:
    assert not replace_hints(FetchResponse(responses=[], node_endpoints=[]), PROXY.get)
