"""Real clusters for the hard tests: Apache Kafka and Rookery, each through a proxy if requested."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rookery.testing.broker import BrokerProcess
from rookery.testing.kafkalogs import Logs
from rookery.testing.kafkaproxy import KafkaProxy


@pytest.fixture(scope="session", autouse=True)
def run_with_faults(own_victim: None) -> None:
    """Let all tests of this folder run with the faults."""


@pytest.fixture(scope="session")
def rookeries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Three brokers of ours."""
    folder = tmp_path_factory.mktemp("rookeries") / "data"
    flags = ["--durability", "os", "--consumer-groups-heartbeat-interval-ms", "200"]
    with BrokerProcess(folder, workers=3, flags=flags) as broker:
        yield broker


@pytest.fixture(params=[pytest.param("kafka", marks=pytest.mark.kafka), "rookery"])
def logs(request: pytest.FixtureRequest) -> Iterator[Logs]:
    """A cluster of one broker or more, of each make."""
    name = "kafka" if request.param == "kafka" else "rookeries"
    with Logs(request.getfixturevalue(name).bootstrap) as made:
        yield made


@pytest.fixture(params=[pytest.param("kafka", marks=pytest.mark.kafka), "rookery"])
def many(request: pytest.FixtureRequest) -> Iterator[Logs]:
    """A cluster of three brokers, of each make."""
    name = "kafka_cluster" if request.param == "kafka" else "rookeries"
    with Logs(request.getfixturevalue(name).bootstrap) as made:
        yield made


@pytest.fixture
def proxy(logs: Logs) -> Iterator[KafkaProxy]:
    """The way to `logs` that can be made long, faulty or cut."""
    with KafkaProxy(logs.bootstrap) as made:
        yield made
