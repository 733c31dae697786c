"""Plain topics together with virtual ones: writes keep their order, and none is forgotten."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest
from confluent_kafka import Producer

from rookery.net.upstream import connect
from rookery.proxy.nodes.producerelay import ProduceRelay, UnconfirmedWrites
from rookery.testing.kafka import KafkaServer
from rookery.testing.servedproxy import ServedProxy
from rookery.wire.messages.api_versions import API_VERSIONS, ApiVersionsRequest
from rookery.wire.messages.produce import (
    PRODUCE,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.proxy.virtual.conftest import create
from tests.proxy.virtual.test_waves import batch


def test_all_writes_of_a_client_are_ordered_in_one_place(
    kafka: KafkaServer, proxy: ServedProxy, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> None:
        raise AssertionError("two places cannot keep the order of one partition")

    monkeypatch.setattr(ProduceRelay, "start", start)
    plain = create(kafka.bootstrap, f"plain-{uuid4().hex}", 1, {})
    producer = Producer({"bootstrap.servers": proxy.bootstrap, "enable.idempotence": True})
    for name in (plain, topic, plain):
        producer.produce(name, b"x", partition=0)
    assert producer.flush(20) == 0


def test_writes_without_acknowledgement_are_confirmed_by_the_next_versions(
    proxy: ServedProxy, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirmed: list[int] = []
    confirm = UnconfirmedWrites.confirm

    async def note(writes: UnconfirmedWrites, *args: object) -> None:
        confirmed.append(len(writes._backends))
        await confirm(writes, *args)  # type: ignore[arg-type] # the same ones

    monkeypatch.setattr(UnconfirmedWrites, "confirm", note)

    async def run() -> None:
        upstream = await connect("127.0.0.1", proxy.port)
        try:
            data = PartitionProduceData(index=5, records=batch(5, 0))
            topics = [TopicProduceData(name=topic, partition_data=[data])]
            request = ProduceRequest(acks=0, timeout_ms=20_000, topic_data=topics)
            await upstream.tell(PRODUCE, 9, request, 20_000)
            await upstream.call(API_VERSIONS, 0, ApiVersionsRequest(), 20_000)
        finally:
            upstream.close()

    asyncio.run(run())

    assert confirmed == [1]
