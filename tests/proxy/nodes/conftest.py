"""Proxies whose instances are the nodes, before a real cluster: Rookery's own or Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import pytest

from rookery.broker.settings import BrokerSettings
from rookery.proxy.settings import ProxySettings
from rookery.testing.kafka import KafkaServer
from rookery.testing.ports import HOST, free_port
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.servedproxy import ServedProxy

BROKERS = 3
NODES = replace(ProxySettings(), nodes="proxy")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServedBroker]]:
    """Three brokers of Rookery, of one cluster."""
    folder = tmp_path_factory.mktemp("upstream") / "data"
    with ExitStack() as stack:
        yield [
            stack.enter_context(ServedBroker(folder, BrokerSettings(durability="os")))
            for _ in range(BROKERS)
        ]


@pytest.fixture(scope="module", params=["rookery", "kafka"])
def server(request: pytest.FixtureRequest) -> str:
    """The addresses of the proxy's upstream."""
    if request.param == "kafka":
        kafka: KafkaServer = request.getfixturevalue("kafka")
        return kafka.bootstrap
    brokers: list[ServedBroker] = request.getfixturevalue("brokers")
    return ",".join(broker.bootstrap for broker in brokers)


@pytest.fixture(scope="module")
def proxy(server: str) -> Iterator[ServedProxy]:
    """A single instance before that cluster."""
    with ServedProxy(server, NODES) as proxy:
        yield proxy


def two_instances(bootstrap: str) -> list[ServedProxy]:
    """Return two instances that know each other, not started."""
    ports = {1: free_port(), 2: free_port()}
    listed = ",".join(f"{node}={HOST}:{port}" for node, port in ports.items())
    return [
        ServedProxy(bootstrap, replace(NODES, node_id=node, instances=listed), port=port)
        for node, port in ports.items()
    ]
