"""The proxy before Kafka, as its clients see it."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic

import pytest

from rookery.client import Client
from rookery.client.settings import ClientSettings
from rookery.errors import Corrupt, ErrorCode, Unavailable
from rookery.testing.kafka import KafkaServer
from rookery.testing.kafkafaults import KafkaFault, fail_fetch, fail_offsets, flip
from rookery.testing.kafkalogs import NOON, Logs, rows
from rookery.testing.kafkaproxy import KafkaProxy
from rookery.testing.servedbroker import ask
from rookery.wire.messages.metadata import METADATA, MetadataRequest


@pytest.fixture
def proxy(kafka: KafkaServer) -> Iterator[KafkaProxy]:
    with KafkaProxy(kafka.bootstrap) as made:
        yield made


@pytest.fixture(scope="module")
def topic(kafka: KafkaServer) -> str:
    with Logs(kafka.bootstrap) as logs:
        name = logs.create("proxied", 1)
        logs.write(name, 0, rows([NOON + n for n in range(10)]), size=5)
        return name


async def _offsets(bootstrap: str, topic: str) -> list[int]:
    async with Client(bootstrap) as client:
        return [record.offset async for record in client.read(topic, 0)]


async def test_all_advertised_addresses_are_those_of_the_proxy(
    proxy: KafkaProxy, kafka: KafkaServer, topic: str
) -> None:
    told = ask(proxy.bootstrap, METADATA, 12, MetadataRequest(topics=None)).brokers

    assert (
        [f"{broker.host}:{broker.port}" for broker in told]
        == [proxy.bootstrap]
        != [kafka.bootstrap]
    )
    assert await _offsets(proxy.bootstrap, topic) == list(range(10))
    assert proxy.requests["Fetch"] >= 1


async def test_round_trips_are_delayed(proxy: KafkaProxy, topic: str) -> None:
    proxy.rtt_ms[proxy.nodes[0]] = 150.0
    began = monotonic()

    assert len(await _offsets(proxy.bootstrap, topic)) == 10

    # To connect, ApiVersions, Metadata and Fetch, at the least.
    assert monotonic() - began >= 4 * 0.15


async def test_cut_connection_can_be_restored(proxy: KafkaProxy, topic: str) -> None:
    proxy.cut()
    hasty = ClientSettings(bootstrap=proxy.bootstrap, call_timeout_ms=300)
    async with Client(hasty) as client:
        with pytest.raises(Unavailable):
            await client.topic(topic)
    proxy.mend()

    assert len(await _offsets(proxy.bootstrap, topic)) == 10


@pytest.mark.parametrize("make", [fail_fetch, fail_offsets])
async def test_error_code_is_injected_the_given_number_of_times(
    proxy: KafkaProxy, topic: str, make: object
) -> None:
    assert callable(make)
    fault = proxy.add(KafkaFault(make(ErrorCode.NOT_LEADER_OR_FOLLOWER), topic, 0, times=2))

    assert await _offsets(proxy.bootstrap, topic) == list(range(10))
    assert fault.done == 2


async def test_flipped_byte_breaks_the_checksum(proxy: KafkaProxy, topic: str) -> None:
    proxy.add(KafkaFault(flip, topic, 0, times=None))

    with pytest.raises(Corrupt):
        await _offsets(proxy.bootstrap, topic)


async def test_other_partitions_are_unaffected(proxy: KafkaProxy, topic: str) -> None:
    fault = proxy.add(KafkaFault(flip, "another", 0, times=None))
    also = proxy.add(KafkaFault(flip, topic, 1, times=None))

    assert await _offsets(proxy.bootstrap, topic) == list(range(10))
    assert (fault.done, also.done) == (0, 0)
