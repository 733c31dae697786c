"""Brokers that join, leave and return while the proxy runs, and ports that run out."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

from confluent_kafka.admin import AdminClient

from rookery.broker.settings import BrokerSettings
from rookery.proxy.settings import ProxySettings
from rookery.testing.ports import HOST, free_ports
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.servedproxy import ServedProxy
from rookery.testing.wait import wait_until

QUICK = ProxySettings(refresh_interval_ms=100)


def broker_in(folder: Path, node_id: int) -> ServedBroker:
    return ServedBroker(folder / "data", BrokerSettings(durability="os", node_id=node_id))


def listed(bootstrap: str) -> dict[int, int]:
    """Return the port of each broker, as clients see it."""
    brokers = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).brokers
    return {node_id: broker.port for node_id, broker in brokers.items()}


def test_new_broker_gets_a_port_and_keeps_it_when_it_returns(tmp_path: Path) -> None:
    with (
        broker_in(tmp_path, 1) as first,
        ServedProxy(first.bootstrap, QUICK) as proxy,
    ):
        [cluster] = proxy.proxy.clusters
        assert set(cluster.nodes) == {1}
        with broker_in(tmp_path, 2):
            wait_until(lambda: set(cluster.nodes) == {1, 2})
            port = cluster.nodes[2].port
            # its port is one to begin with, too
            wait_until(lambda: set(listed(f"{HOST}:{port}")) == {1, 2})
        wait_until(lambda: set(listed(proxy.bootstrap)) == {1})
        with broker_in(tmp_path, 2):
            wait_until(lambda: listed(proxy.bootstrap).get(2) == port)
            wait_until(lambda: set(listed(f"{HOST}:{port}")) == {1, 2})


def test_learnt_brokers_serve_while_those_of_the_configuration_are_away(tmp_path: Path) -> None:
    with broker_in(tmp_path, 2):
        first = broker_in(tmp_path, 1)
        first.start()
        with ServedProxy(first.bootstrap, QUICK) as proxy:
            [cluster] = proxy.proxy.clusters
            try:
                wait_until(lambda: set(cluster.nodes) == {1, 2})
            finally:
                first.stop()
            wait_until(lambda: set(listed(proxy.bootstrap)) == {2})
            with broker_in(tmp_path, 3):
                wait_until(lambda: set(cluster.nodes) == {1, 2, 3})

                assert cluster.trouble == ""


def test_exhausted_range_hurts_only_the_broker_without_a_port(tmp_path: Path) -> None:
    first_port = free_ports(1)
    settings = replace(QUICK, node_ports=f"{first_port}-{first_port}")
    with (
        broker_in(tmp_path, 1) as first,
        ServedProxy(first.bootstrap, settings) as proxy,
    ):
        [cluster] = proxy.proxy.clusters
        with broker_in(tmp_path, 2):
            wait_until(lambda: 2 in cluster.missing_nodes)

            assert "all 1 from" in cluster.missing_nodes[2]
            assert "set a larger range" in cluster.missing_nodes[2]
            assert cluster.trouble == ""
            assert listed(proxy.bootstrap) == {1: first_port}
            assert set(listed(first.bootstrap)) == {1, 2}
            with_port = AdminClient({"bootstrap.servers": f"{HOST}:{first_port}"})
            assert with_port.describe_cluster().result(20).nodes


def test_port_of_a_broker_that_is_taken_is_used_once_it_is_free(tmp_path: Path) -> None:
    first_port = free_ports(4)
    settings = replace(QUICK, node_ports=f"{first_port}-{first_port + 3}")
    taken = socket.create_server((HOST, first_port + 1))
    with broker_in(tmp_path, 1) as broker, ServedProxy(broker.bootstrap, settings) as proxy:
        [cluster] = proxy.proxy.clusters
        assert "cannot listen on" in cluster.missing_nodes[1]
        taken.close()
        wait_until(lambda: not cluster.missing_nodes)

        assert listed(proxy.bootstrap) == {1: first_port + 1}
