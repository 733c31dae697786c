"""Clients of a real Kafka, and topics of a test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count

import pytest

from rookery.client.client import Client
from rookery.testing.broker import BrokerProcess
from rookery.testing.kafka import KafkaCluster, KafkaNode, KafkaServer
from tests.clients.peers import serve
from tests.proxies import Proxies, through

DIRECT = "direct"
WAYS = (DIRECT, *through("kafka", "cluster", "rookery"))
"""Directly to one Kafka, and through proxies to one, to three of them, and to Rookery."""
_numbers = count(1)


@pytest.fixture(scope="module")
def way(request: pytest.FixtureRequest) -> str:
    """How clients reach the server: directly, or through a proxy with a kind of nodes."""
    return str(getattr(request, "param", DIRECT))


@pytest.fixture(scope="module")
def rookery_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with serve(tmp_path_factory.mktemp("rookery") / "data") as broker:
        yield broker


@pytest.fixture(scope="module")
def kafka(
    request: pytest.FixtureRequest, kafka: KafkaServer, way: str, proxies: Proxies
) -> KafkaNode:
    """The one Kafka, or what takes its place: what clients see through a proxy."""
    if way == DIRECT:
        return kafka
    name, _, mode = way.partition("-")
    if name == "kafka":
        return kafka.behind(proxies.find(kafka.bootstrap, mode).port)
    if name == "rookery":
        broker: BrokerProcess = request.getfixturevalue("rookery_broker")
        return kafka.behind(proxies.find(broker.bootstrap, mode).port)
    cluster: KafkaCluster = request.getfixturevalue("kafka_cluster")
    return cluster.node(1).behind(proxies.find(cluster.bootstrap, mode).port)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run every test with the server directly and through a proxy, unless a module has `WAYS`."""
    if "way" in metafunc.fixturenames:
        ways = getattr(metafunc.module, "WAYS", WAYS)
        metafunc.parametrize("way", ways, indirect=True, scope="module")


@pytest.fixture
async def client(kafka: KafkaServer) -> AsyncIterator[Client]:
    """A client of the one Kafka."""
    async with Client(kafka.bootstrap) as made:
        yield made


@pytest.fixture
def new_name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Make names for topics and groups that no other test uses."""

    def make() -> str:
        test = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
        return f"{test}-{next(_numbers)}"

    return make


@pytest.fixture
async def topic(client: Client, new_name: Callable[[], str]) -> str:
    """A new topic with ten partitions."""
    name = new_name()
    await client.create_topic(name, partitions=10, replication_factor=1)
    return name
