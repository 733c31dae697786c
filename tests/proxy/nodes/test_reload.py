"""Changes of settings reach broker nodes: a changed virtual cluster is replaced and drains."""

from __future__ import annotations

import socket
from dataclasses import replace
from uuid import uuid4

import pytest

from rookery.errors import ConfigError, ErrorCode
from rookery.model.address import Address
from rookery.proxy.settings import ProxySettings, VirtualClusterSettings
from rookery.testing.ports import HOST, free_port, free_ports
from rookery.testing.servedbroker import ServedBroker, ask
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until
from rookery.wire.codec import read_response, request_frame
from rookery.wire.messages.fetch import FETCH, FetchPartition, FetchRequest, FetchTopic
from rookery.wire.messages.metadata import METADATA, MetadataRequest
from tests.proxy.test_topic_prefix import create


@pytest.fixture(scope="module")
def server(brokers: list[ServedBroker]) -> str:
    """The addresses of the proxy's upstream."""
    return ",".join(broker.bootstrap for broker in brokers)


@pytest.fixture
def cluster(server: str) -> VirtualClusterSettings:
    return VirtualClusterSettings(
        upstream=server, listen=f"{HOST}:{free_port()}", nodes="proxy", node_id=7
    )


def serving(cluster: VirtualClusterSettings) -> ServedProxy:
    return ServedProxy(settings=ProxySettings(clusters={"one": cluster}))


def apply(proxy: ServedProxy, cluster: VirtualClusterSettings) -> tuple[str, ...]:
    """Change the settings of the only cluster; return the names of those that were replaced."""
    change = proxy.do(proxy.proxy.apply(replace(proxy.settings, clusters={"one": cluster})))
    assert not change.need_restart
    return change.changed


def nodes(cluster: VirtualClusterSettings) -> dict[int, Address]:
    """Return the brokers that clients see."""
    answer = ask(cluster.address.text, METADATA, 9, MetadataRequest(topics=[]))
    return {each.node_id: Address(each.host, each.port) for each in answer.brokers}


def test_mirror_and_broker_nodes_replace_each_other(
    cluster: VirtualClusterSettings, brokers: list[ServedBroker]
) -> None:
    # By default, brokers have the ports after that of the cluster, which other tests may use.
    first = free_ports(len(brokers) + 1)
    mirror = replace(cluster, nodes="mirror", node_ports=f"{first}-{first + len(brokers)}")
    with serving(mirror) as proxy:
        mirrored = nodes(cluster)
        assert len(mirrored) == len(brokers)

        assert apply(proxy, cluster) == ("one",)
        assert nodes(cluster) == {7: cluster.address}

        assert apply(proxy, mirror) == ("one",)
        assert nodes(cluster) == mirrored


def test_other_node_id_and_instances_replace_the_cluster(cluster: VirtualClusterSettings) -> None:
    with serving(cluster) as proxy:
        renumbered = replace(cluster, node_id=8)
        assert apply(proxy, renumbered) == ("one",)
        assert nodes(cluster) == {8: cluster.address}

        # an alias, so that the second instance is present
        alias = Address("localhost", cluster.address.port)
        listed = replace(renumbered, instances=f"8={cluster.address.text},9={alias.text}")
        assert apply(proxy, listed) == ("one",)
        assert nodes(cluster) == {8: cluster.address, 9: alias}
        assert apply(proxy, listed) == ()


def test_instances_without_this_one_change_nothing(cluster: VirtualClusterSettings) -> None:
    with serving(cluster) as proxy:
        with pytest.raises(ConfigError, match=r"clusters\.one\.node_id.*not among"):
            apply(proxy, replace(cluster, instances=f"1={cluster.address.text}"))

        assert nodes(cluster) == {7: cluster.address}


def test_requests_in_flight_are_answered_before_the_connection_closes(
    cluster: VirtualClusterSettings,
) -> None:
    topic = f"t-{uuid4().hex[:8]}"
    with serving(cluster) as proxy:
        create(cluster.address.text, topic)
        wait_until(lambda: not proxy.proxy.clusters[0].links)
        row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1024)
        request = FetchRequest(
            max_wait_ms=1_000, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[row])]
        )
        with (
            socket.create_connection(cluster.address, 20) as client,
            client.makefile("rb") as stream,
        ):
            client.sendall(b"".join(request_frame(FETCH, 12, 5, "test", request)))
            wait_until(lambda: bool(proxy.proxy.clusters[0].links))

            assert apply(proxy, replace(cluster, node_id=8)) == ("one",)

            frame = stream.read(int.from_bytes(stream.read(4), "big"))
            assert stream.read() == b""
        wait_until(lambda: proxy.proxy.draining == 0)

    answer = read_response(FETCH, 12, frame)
    assert [each.error_code for each in answer.responses[0].partitions] == [ErrorCode.NONE]
