"""Addresses of brokers: found in every answer that contains them, and changed in pairs."""

from __future__ import annotations

from rookery.errors import ErrorCode
from rookery.model.address import Address
from rookery.testing.messages import random_message
from rookery.wire.catalog import apis
from rookery.wire.codec import decode, encode_bytes
from rookery.wire.endpoints import endpoint_fields, has_endpoints, rewrite_endpoints
from rookery.wire.message import Host, Message
from rookery.wire.messages.fetch import FetchResponse
from rookery.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from rookery.wire.messages.heartbeat import HeartbeatResponse
from rookery.wire.messages.metadata import MetadataResponse, MetadataResponseBroker
from rookery.wire.table import structures
from rookery.wire.walk import has_kind, visit

PROXIES = {1: Address("proxy", 1001), 2: Address("proxy", 1002)}
# Of controllers: the id stands above a list of listeners, or in the request alone.
LISTENERS = {
    "BeginQuorumEpochRequest", "EndQuorumEpochRequest", "BrokerRegistrationRequest",
    "ControllerRegistrationRequest", "AddRaftVoterRequest", "UpdateRaftVoterRequest",
    "DescribeQuorumResponse",
}  # fmt: skip


def through_proxy(node: int, address: Address) -> Address:
    return PROXIES.get(node, address)


def test_brokers_with_the_same_port_on_many_hosts_are_distinguished() -> None:
    rows = [
        MetadataResponseBroker(node_id=node, host=f"host-{node}", port=9092) for node in (2, 3, 1)
    ]
    response = MetadataResponse(brokers=rows, topics=[])

    assert rewrite_endpoints(response, through_proxy) is response

    assert [(row.node_id, row.host, row.port) for row in response.brokers] == [
        (2, "proxy", 1002),
        (3, "host-3", 9092),
        (1, "proxy", 1001),
    ]


def test_endpoint_can_be_the_message_itself_with_an_unset_id() -> None:
    coordinator = Coordinator(
        key="g", node_id=2, host="host-2", port=9092, error_code=ErrorCode.NONE
    )
    response = FindCoordinatorResponse(coordinators=[coordinator])
    asked: list[int] = []

    def change(node: int, address: Address) -> Address:
        asked.append(node)
        return through_proxy(node, address)

    rewrite_endpoints(response, change)

    assert asked == [-1, 2]
    assert (response.host, response.port) == ("", -1)
    assert (coordinator.host, coordinator.port) == ("proxy", 1002)


def test_every_address_belongs_to_an_endpoint_or_a_controller() -> None:
    def addressed(cls: type[Message]) -> bool:
        return any(
            has_kind(structure, Host) and endpoint_fields(structure) is None
            for structure in structures(cls)
            if not any(endpoint_fields(inner) for inner in structures(structure))
        )

    messages = [cls for api in apis().values() for cls in (api.request, api.response)]

    assert {cls.__name__ for cls in messages if addressed(cls)} == LISTENERS
    assert has_endpoints(FetchResponse)
    assert not has_endpoints(HeartbeatResponse)


def test_rewritten_answers_still_encode_in_every_version() -> None:
    for api in apis().values():
        if not has_endpoints(api.response):
            continue
        for version in api.versions:
            response = random_message(api.response, version, 3)
            rewrite_endpoints(response, lambda *_: Address("proxy", 7))
            back = decode(api.response, version, encode_bytes(response, version))
            assert set(visit(back, Host)) <= {"proxy", ""}, (api, version)
