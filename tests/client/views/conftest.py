"""A client of a real Kafka, then of our own broker: the views must be the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest

from rookery.broker.settings import BrokerSettings
from rookery.client.client import Client
from rookery.testing.kafka import KafkaServer
from rookery.testing.servedbroker import ServedBroker
from tests.proxies import Proxies, through


@pytest.fixture(scope="module", params=["kafka", "rookery", *through("kafka", "rookery")])
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, proxies: Proxies
) -> Iterator[str]:
    """The address of one or the other, and through a proxy."""
    kind, _, mode = str(request.param).partition("-")
    with ExitStack() as stack:
        server: KafkaServer | ServedBroker
        if kind == "kafka":
            server = request.getfixturevalue("kafka")
        else:
            folder = tmp_path_factory.mktemp("views")
            settings = BrokerSettings(durability="os")
            server = stack.enter_context(ServedBroker(folder / "data", settings))
        yield proxies.find(server.bootstrap, mode).bootstrap if mode else server.bootstrap


@pytest.fixture
async def client(bootstrap: str) -> AsyncIterator[Client]:
    """A client of it."""
    async with Client(bootstrap) as made:
        yield made
