"""Instances that cannot be reached are left out, and come back."""

from __future__ import annotations

import asyncio
import socket

from confluent_kafka import Producer

from rookery.model.address import Address
from rookery.proxy.nodes.instances import InstanceList
from rookery.proxy.nodes.presence import InstanceProbe, accepts_connections
from rookery.testing.ports import HOST, free_port
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.messages.metadata import METADATA, MetadataRequest
from tests.proxy.nodes.conftest import two_instances


def test_instance_is_away_after_three_failures() -> None:
    reachable = {2: True, 3: True}
    instances = InstanceList(1, {node: Address("proxy", node) for node in (1, 2, 3)})

    async def is_reachable(where: Address) -> bool:
        return reachable[where.port]

    async def probe(times: int) -> list[int]:
        for _ in range(times):
            await prober.run()
        return list(instances.present)

    prober = InstanceProbe([instances], is_reachable)
    reachable[3] = False
    assert asyncio.run(probe(2)) == [1, 2, 3]
    assert asyncio.run(probe(1)) == [1, 2]
    reachable[3] = True
    assert asyncio.run(probe(1)) == [1, 2, 3]


def test_closed_port_is_not_reachable() -> None:
    with socket.create_server((HOST, 0)) as server:
        where = Address(HOST, server.getsockname()[1])
        assert asyncio.run(accepts_connections(where))
    assert not asyncio.run(accepts_connections(Address(HOST, free_port())))


def test_clients_continue_with_the_remaining_instances(brokers: list[ServedBroker]) -> None:
    bootstrap = ",".join(broker.bootstrap for broker in brokers)
    first, second = two_instances(bootstrap)

    def listed(proxy: ServedProxy) -> list[int]:
        answer = ask(proxy.bootstrap, METADATA, 12, MetadataRequest(topics=[]))
        return [row.node_id for row in answer.brokers]

    with first:
        with second:
            assert listed(first) == listed(second) == [1, 2]
            servers = f"{first.bootstrap},{second.bootstrap}"
            producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
            for _ in range(4):
                producer.produce("presence", b"1", partition=0)
            assert producer.flush(20) == 0
        wait_until(lambda: listed(first) == [1])
        for _ in range(4):
            producer.produce("presence", b"2", partition=0)
        assert producer.flush(20) == 0
