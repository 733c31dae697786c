"""Clients of a real Kafka, and topics of a test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from itertools import count

import pytest

from rookery.client.client import Client
from rookery.testing.kafka import KafkaServer

_numbers = count(1)


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
