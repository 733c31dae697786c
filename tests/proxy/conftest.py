"""A real proxy in front of a real cluster, Rookery's own or Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from rookery.broker.settings import BrokerSettings
from rookery.testing.kafka import KafkaServer
from rookery.testing.servedbroker import ServedBroker
from rookery.testing.servedproxy import ServedProxy


@pytest.fixture(scope="module", params=["rookery", "kafka"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of the proxy's upstream."""
    if request.param == "kafka":
        kafka: KafkaServer = request.getfixturevalue("kafka")
        yield kafka.bootstrap
        return
    folder = tmp_path_factory.mktemp("upstream")
    with ServedBroker(folder / "data", BrokerSettings(durability="os")) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="module")
def proxy(server: str) -> Iterator[ServedProxy]:
    """A proxy in front of that cluster."""
    with ExitStack() as stack:
        yield stack.enter_context(ServedProxy(server))
