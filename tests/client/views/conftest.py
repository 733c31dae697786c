"""A client of a real Kafka, then of our own broker: the views must be the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from rookery.broker.settings import BrokerSettings
from rookery.client.client import Client
from rookery.testing.kafka import KafkaServer
from rookery.testing.served import ServedBroker


@pytest.fixture(scope="module", params=["kafka", "rookery"])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of one or the other."""
    if request.param == "kafka":
        kafka: KafkaServer = request.getfixturevalue("kafka")
        yield kafka.bootstrap
        return
    folder = tmp_path_factory.mktemp("views")
    with ServedBroker(folder / "data", BrokerSettings(durability="os")) as broker:
        yield broker.bootstrap


@pytest.fixture
async def client(bootstrap: str) -> AsyncIterator[Client]:
    """A client of it."""
    async with Client(bootstrap) as made:
        yield made
