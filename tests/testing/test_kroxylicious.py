"""The peer of our proxy: clients reach Kafka through it alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rookery.client import Client
from rookery.testing.kafka import KafkaServer
from rookery.testing.kafkalogs import NOON, Logs, rows
from rookery.testing.kroxylicious import KroxyliciousServer
from rookery.testing.servedbroker import ask
from rookery.wire.messages.metadata import METADATA, MetadataRequest


@pytest.fixture(scope="module")
def kroxylicious(kafka: KafkaServer) -> Iterator[KroxyliciousServer]:
    with KroxyliciousServer(kafka.bootstrap) as server:
        yield server


async def test_records_are_read_through_the_advertised_addresses(
    kafka: KafkaServer, kroxylicious: KroxyliciousServer
) -> None:
    with Logs(kafka.bootstrap) as logs:
        topic = logs.create("peered", 1)
        logs.write(topic, 0, rows([NOON + n for n in range(10)]), size=5)

    brokers = ask(kroxylicious.bootstrap, METADATA, 12, MetadataRequest(topics=[])).brokers
    async with Client(kroxylicious.bootstrap) as client:
        offsets = [record.offset async for record in client.read(topic, 0)]

    # The first port is where clients begin, the second is that of a node 0, and Kafka's id is 1.
    assert [(row.node_id, row.port) for row in brokers] == [(1, kroxylicious.port + 2)]
    assert offsets == list(range(10))


def test_restart_keeps_the_ports(kroxylicious: KroxyliciousServer) -> None:
    bootstrap = kroxylicious.bootstrap

    kroxylicious.restart()

    assert kroxylicious.bootstrap == bootstrap
    assert ask(bootstrap, METADATA, 12, MetadataRequest(topics=[])).brokers
