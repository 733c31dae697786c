"""Broker nodes with several listeners: each shows the instances at its own addresses."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from rookery.errors import ConfigError
from rookery.model.address import Address
from rookery.proxy.nodes.brokernodes import read_instances
from rookery.proxy.nodes.instances import InstanceList
from rookery.proxy.nodes.presence import InstanceProbe
from rookery.proxy.settings import (
    ClusterListenerSettings,
    ProxySettings,
    VirtualClusterSettings,
)
from rookery.testing.ports import HOST, free_port
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.message import Api, Request, Response
from rookery.wire.messages.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from rookery.wire.messages.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from rookery.wire.messages.metadata import METADATA, MetadataRequest, MetadataRequestTopic

LISTENERS = ("internal", "external")


def two_instances(upstream: str) -> list[ServedProxy]:
    """Return two instances with two listeners each, not started."""
    ports = {name: {1: free_port(), 2: free_port()} for name in LISTENERS}
    lists = {
        name: ",".join(f"{node}={HOST}:{port}" for node, port in of_nodes.items())
        for name, of_nodes in ports.items()
    }
    return [
        ServedProxy(
            upstream,
            ProxySettings(
                nodes="proxy",
                node_id=node,
                listeners={
                    name: ClusterListenerSettings(
                        listen=f"{HOST}:{ports[name][node]}", instances=lists[name]
                    )
                    for name in LISTENERS
                },
            ),
        )
        for node in (1, 2)
    ]


def at(proxy: ServedProxy, name: str) -> str:
    return proxy.settings.listeners[name].address.text


def asked(
    proxy: ServedProxy, name: str, api: Api[Request, Response], version: int, request: Any
) -> Any:
    return ask(at(proxy, name), api, version, request)


def brokers_at(proxy: ServedProxy, name: str) -> dict[int, int]:
    rows = asked(proxy, name, METADATA, 12, MetadataRequest(topics=[])).brokers
    return {row.node_id: row.port for row in rows}


def test_each_listener_shows_all_instances_at_its_addresses(brokers: list[ServedBroker]) -> None:
    upstream = ",".join(broker.bootstrap for broker in brokers)
    topic = f"t-{uuid4().hex[:8]}"
    first, second = two_instances(upstream)
    with ExitStack() as stack:
        stack.enter_context(first)
        stack.enter_context(second)
        admin = AdminClient({"bootstrap.servers": at(first, "internal")})
        admin.create_topics([NewTopic(topic, 6, 1)])[topic].result(20)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        leaders: list[list[int]] = []
        for name in LISTENERS:
            expected = {
                node: each.settings.listeners[name].address.port
                for node, each in ((1, first), (2, second))
            }
            for proxy in (first, second):
                assert brokers_at(proxy, name) == expected
                rows = asked(proxy, name, DESCRIBE_CLUSTER, 0, DescribeClusterRequest()).brokers
                assert {row.broker_id: row.port for row in rows} == expected
                found = asked(
                    proxy, name, FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=["g"])
                )
                [row] = found.coordinators
                assert row.error_code or expected[row.node_id] == row.port
                answer = asked(proxy, name, METADATA, 12, request)
                leaders.append([each.leader_id for each in answer.topics[0].partitions])
            producer = Producer({"bootstrap.servers": at(first, name), "enable.idempotence": True})
            for number in range(60):
                producer.produce(topic, b"%d" % number, partition=number % 6)
            assert producer.flush(20) == 0
        # whichever listener is asked, a partition belongs to the same instance
        assert leaders[1:] == leaders[:-1]


def test_instance_that_ends_is_left_out_at_each_listener(brokers: list[ServedBroker]) -> None:
    first, second = two_instances(brokers[0].bootstrap)
    with first:
        with second:
            for name in LISTENERS:
                assert brokers_at(first, name).keys() == {1, 2}
        for name in LISTENERS:
            wait_until(partial(shows_only, first, name, 1))


def shows_only(proxy: ServedProxy, name: str, node: int) -> bool:
    return brokers_at(proxy, name).keys() == {node}


def test_single_instance_needs_no_list(brokers: list[ServedBroker]) -> None:
    listeners = {
        name: ClusterListenerSettings(listen=f"{HOST}:0", advertise=host)
        for name, host in (("internal", ""), ("external", "localhost"))
    }
    settings = ProxySettings(nodes="proxy", node_id=7, listeners=listeners)
    with ServedProxy(brokers[0].bootstrap, settings) as proxy:
        [cluster] = proxy.proxy.clusters
        for name, host in (("internal", HOST), ("external", "localhost")):
            where = cluster.listeners.by_name[name].ports.bootstrap_address
            assert where.host == host
            assert cluster.nodes_at(name) == {7: where}
            rows = ask(where.text, METADATA, 12, MetadataRequest(topics=[])).brokers
            assert [(row.node_id, row.host, row.port) for row in rows] == [(7, *where)]


def test_one_address_that_answers_suffices() -> None:
    reachable: set[str] = set()

    async def is_reachable(where: Address) -> bool:
        return where.host in reachable

    async def probe() -> list[list[int]]:
        for _ in range(3):
            await prober.run()
        return [list(each.present) for each in lists]

    lists = [
        InstanceList(1, {node: Address(f"{name}-{node}", 9092) for node in (1, 2)})
        for name in LISTENERS
    ]
    prober = InstanceProbe(lists, is_reachable)
    assert asyncio.run(probe()) == [[1], [1]]
    reachable.add("external-2")
    assert asyncio.run(probe()) == [[1, 2], [1, 2]]


@pytest.mark.parametrize(
    ("listeners", "problem"),
    [
        (
            {"a": "1=a:1,2=b:1", "b": "1=c:1"},
            r"^listeners\.b\.instances: \[1\] must be the node ids .* \[1, 2\]",
        ),
        ({"a": "2=a:1"}, r"^node_id: 1 is not among"),
        ({"a": "nonsense"}, r"^listeners\.a\.instances: 'nonsense' is not an instance"),
    ],
)
def test_contradictory_lists_are_refused(listeners: dict[str, str], problem: str) -> None:
    settings = VirtualClusterSettings(
        listeners={
            name: ClusterListenerSettings(listen=f"{HOST}:0", instances=text)
            for name, text in listeners.items()
        }
    )
    with pytest.raises(ConfigError, match=problem):
        read_instances(settings)
